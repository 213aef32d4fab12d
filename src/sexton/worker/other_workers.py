"""Asks whether another live worker may have what this one lacks."""

from __future__ import annotations

from uuid import UUID

from sexton.clock import Clock
from sexton.errors import Contention, DatabaseUnavailable
from sexton.store.database import Database
from sexton.store.fleet import workers


class OtherWorkers:
    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def __call__(self, run_id: UUID, lacks: str) -> bool:
        """True also if the database cannot tell now: the run is then tried again, which costs little."""
        try:
            async with self._database.connection() as connection:
                return await workers.is_elsewhere(connection, run_id, lacks, now=self._clock.database_now())
        except (Contention, DatabaseUnavailable, TimeoutError):
            return True
