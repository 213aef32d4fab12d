"""Moves due runs from waiting to ready, earliest first, and tells the queues. The B-tree is the timer: a pass peeks at the
earliest due row of its partitions and keeps nothing in memory that it could not lose."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sexton.clock import Clock
from sexton.domain import partition
from sexton.store import runs
from sexton.store.database import Database
from sexton.telemetry.events import Emit, Promoted

from . import admission

REST_S_MAX = 2.0  # rule 12: no longer where something could become due unannounced
OVERDUE_S = 2.0  # what a leader leaves undone for this long, anybody does


class Promoter:
    name = "promoter"

    def __init__(
        self,
        database: Database,
        led: Callable[[], Collection[int]],
        *,
        limit: int,
        clock: Clock,
        emit: Emit,
        rest_s_max: float = REST_S_MAX,
    ) -> None:
        self._database, self._led, self._limit, self._clock, self._emit = database, led, limit, clock, emit
        self._rest_s_max = min(rest_s_max, REST_S_MAX)
        self._looked_around_at: float | None = None

    async def run_once(self) -> float:
        rest_s = await self._promote(self._led(), overdue_s=0.0)
        if self._time_to_look_around():
            await self._promote(partition.ALL, overdue_s=OVERDUE_S)
        return rest_s

    async def _promote(self, partitions: Collection[int], *, overdue_s: float) -> float:
        async with self._database.connection() as connection:
            done = await runs.promote(
                connection, partitions=partitions, limit=self._limit, overdue_s=overdue_s, now=self._clock.database_now()
            )
            if done.promoted_count:
                await runs.announce(connection, done.queues)
                self._emit(Promoted(done.promoted_count, tuple(done.queues), overdue=overdue_s > 0))
        admitted_count = await self._admit(partitions, overdue_s=overdue_s) if done.to_decide else 0
        if max(done.promoted_count, admitted_count) >= self._limit:
            return 0.0
        return self._rest_s_max if done.next_due_s is None else min(done.next_due_s, self._rest_s_max)

    async def _admit(self, partitions: Collection[int], *, overdue_s: float) -> int:
        count, queues = await admission.admit(self._database, partitions, limit=self._limit, clock=self._clock)
        if count:
            self._emit(Promoted(count, tuple(queues), overdue=overdue_s > 0))
        return count

    def _time_to_look_around(self) -> bool:
        """Whatever is overdue in partitions that others lead, looked at about every two seconds however busy our own are."""
        if len(self._led()) == partition.PARTITION_COUNT:
            return False
        now = self._clock.monotonic()
        if self._looked_around_at is not None and now - self._looked_around_at < OVERDUE_S:
            return False
        self._looked_around_at = now
        return True
