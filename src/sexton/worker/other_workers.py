"""Tells whether a call that the settings of this worker refuse may still be allowed by another worker, now or soon: in a
rolling deploy the workers with the new settings may not have started yet."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sexton.clock import Clock
from sexton.errors import Contention, DatabaseUnavailable
from sexton.store.database import Database
from sexton.store.fleet import workers

from .missing_settings import KEPT_S

PATIENCE_S = 600.0  # a call is refused this long before it fails for good: the first new worker of a deploy is up by then
HOSTS_LIMIT = 1_000


class _Refusals(NamedTuple):
    first_at: float
    last_at: float


class OtherWorkers:
    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._refusals: dict[str, _Refusals] = {}

    async def __call__(self, run_id: UUID, lacks: str) -> bool:
        """True also if the database cannot tell now: the run is then tried again, which costs little."""
        if self._refused_for_s(lacks) < PATIENCE_S:
            return True
        try:
            async with self._database.connection() as connection:
                return await workers.is_elsewhere(connection, run_id, lacks, now=self._clock.database_now())
        except (Contention, DatabaseUnavailable, TimeoutError):
            return True

    def _refused_for_s(self, lacks: str) -> float:
        """How long this worker has refused it. What it has not been asked for as long as notes are kept counts from now. For
        more hosts than are kept there is no patience: otherwise a tenant could let any number of calls come back for ever."""
        now = self._clock.monotonic()
        if lacks not in self._refusals and len(self._refusals) >= HOSTS_LIMIT:
            self._refusals = {name: one for name, one in self._refusals.items() if now - one.last_at < KEPT_S}
            if len(self._refusals) >= HOSTS_LIMIT:
                return PATIENCE_S
        known = self._refusals.get(lacks)
        first_at = now if known is None or now - known.last_at >= KEPT_S else known.first_at
        self._refusals[lacks] = _Refusals(first_at, now)
        return now - first_at
