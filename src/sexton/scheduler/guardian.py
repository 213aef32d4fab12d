"""Sees to it that no recurring job is forgotten: repairs what lives by all signs and yet nobody would plan, ends pauses whose
time is up. By index every minute; once an hour it looks at every schedule."""

from __future__ import annotations

from uuid import UUID

from sexton.clock import Clock
from sexton.store import recurring, schedules
from sexton.store.database import Database
from sexton.telemetry.events import Emit, Repaired

REST_S = 60.0
FULL_S = 3600.0
RESUME_LIMIT = 500


class Guardian:
    name = "guardian"

    def __init__(self, database: Database, *, clock: Clock, emit: Emit) -> None:
        self._database, self._clock, self._emit = database, clock, emit
        self._checked_all_at: float | None = None

    async def run_once(self) -> float:
        now = self._clock.database_now()
        async with self._database.connection() as connection:
            repaired = await schedules.repair(connection, now=now)
            found = list(repaired.forgotten)
            if self._time_for_all():
                found += await schedules.unplanned(connection, now=now)
            due = await schedules.due_to_resume(connection, limit=RESUME_LIMIT, now=now)
            next_s = await schedules.next_resume_s(connection, now=now)
        if found or repaired.late_count:
            self._emit(Repaired(tuple(found), repaired.late_count))
        for job_id in due:
            await self._resume(job_id)
        if len(due) == RESUME_LIMIT:
            return 0.0
        return REST_S if next_s is None or next_s <= 0 else min(next_s, REST_S)

    async def _resume(self, job_id: UUID) -> None:
        async with self._database.transaction() as connection:
            await recurring.resume_due(connection, job_id, now=self._clock.database_now())

    def _time_for_all(self) -> bool:
        now = self._clock.monotonic()
        if self._checked_all_at is not None and now - self._checked_all_at < FULL_S:
            return False
        self._checked_all_at = now
        return True
