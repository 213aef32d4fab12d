"""Makes postponed runs due now when their host is up again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from uuid import UUID

from sexton.clock import Clock
from sexton.service import Wake
from sexton.store.database import Database
from sexton.store.work import runs

BATCH = 1000
PENDING_LIMIT = 20_000  # further runs wait until they are due
AGAIN_S = 0.25  # after this time, the report of a run that was just postponed is written
REST_S = 60.0

Fence = tuple[UUID, int]


class EarlyRetry:
    name = "early_retry"

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._pending: deque[Fence] = deque()
        self._missed: deque[tuple[float, Fence]] = deque()  # with the time of the single retry
        self.wake = Wake()

    def __call__(self, fences: Iterable[Fence]) -> None:
        """Runs by id and token. A run that was claimed since then is not changed."""
        if len(self._pending) + len(self._missed) < PENDING_LIMIT:
            self._pending.extend(fences)
            self.wake()

    async def run_once(self) -> float:
        now = self._clock.monotonic()
        fresh = list(islice(self._pending, BATCH))
        again = [fence for at, fence in islice(self._missed, BATCH) if at <= now]
        if fresh or again:
            async with self._database.connection() as connection:
                made_due = set(await runs.make_due(connection, [*fresh, *again], now=self._clock.database_now()))
            for _ in fresh:
                self._pending.popleft()
            for _ in again:
                self._missed.popleft()
            self._missed.extend((now + AGAIN_S, fence) for fence in fresh if fence[0] not in made_due)
        if self._pending:
            return 0.0
        return max(0.0, self._missed[0][0] - self._clock.monotonic()) if self._missed else REST_S
