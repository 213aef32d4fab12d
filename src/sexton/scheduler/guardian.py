"""Makes sure that no recurring job is forgotten: repairs live schedules that no planner would plan, and ends pauses at their
`resume_at`. Every minute it looks by index; once an hour it looks at every schedule, and applies newer time zone data."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.schedule.zone import tzdata_order, tzdata_version
from sexton.errors import Contention
from sexton.operations.bisection import BRIEFLY, in_parts
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import recurring_jobs, replan
from sexton.store.database import Connection, Database
from sexton.store.views import locked_tables
from sexton.store.work import schedules, zones
from sexton.telemetry.events import Emit, Repaired, ZonesFollowed, ZonesOlder

REST_S = 60.0
FULL_S = 3600.0
AGAIN_S = 1.0  # if another session has locked a job whose pause is over
RESUME_LIMIT = 500
REPLAN_LIMIT = 200  # schedules per transaction: about 30 ms with their rows locked


class Guardian:
    name = "guardian"

    def __init__(self, database: Database, *, clock: Clock, emit: Emit) -> None:
        self._database, self._clock, self._emit = database, clock, emit
        self._checked_all_at: float | None = None
        self._replanned: UUID | None = None  # how far newer time zone data have been applied; None: to the end
        self._found_behind = False
        self._told_older = False

    async def run_once(self) -> float:
        now = self._clock.database_now()
        async with self._database.connection() as connection:
            repaired = await schedules.repair(connection, now=now)
            found = list(repaired.forgotten)
            began_at = self._clock.monotonic()
            if self._checked_all_at is None or began_at - self._checked_all_at >= FULL_S:
                await self._compare_zones(connection)
                found += await schedules.unplanned(connection, now=now)
                self._checked_all_at = began_at
            due = await schedules.due_to_resume(connection, limit=RESUME_LIMIT, now=now)
            late_count = repaired.late_count
            if late_count and await locked_tables.lasting(connection):
                late_count = 0  # no planner can write: the lock watcher names the session
        if found or late_count:
            self._emit(Repaired(tuple(found), late_count))
        contention = await self._resume_all(due)
        has_more = await self._follow_zones()
        if contention is not None:
            raise contention
        if has_more or len(due) == RESUME_LIMIT:
            return 0.0
        return await self._until_resume_s()

    async def _compare_zones(self, connection: Connection) -> None:
        """Rule "one instant, one fire": only newer data replan. A node with the newest data continues what another has
        started."""
        mine, newest = tzdata_version(), await zones.newest(connection)
        if newest is not None and tzdata_order(newest) > tzdata_order(mine):
            if not self._told_older:
                self._emit(ZonesOlder(mine, newest))
            self._told_older = True
            return
        if newest != mine:
            await zones.take_over(connection, now=self._clock.database_now())
        self._replanned = zones.FIRST

    async def _follow_zones(self) -> bool:
        """True if there is more to do at once. A pass that found something is repeated, for rows that other sessions had
        locked."""
        if self._replanned is None:
            return False
        now = self._clock.database_now()
        async with self._database.transaction() as connection:
            behind = await zones.behind(connection, after=self._replanned, limit=REPLAN_LIMIT)
            if not behind:
                await zones.forget(connection, now=now)

        async def write(connection: Connection, part: Sequence[UUID]) -> int:
            return len(await replan.replan(connection, SCHEDULER, part, now=now))

        changed_count = sum((await in_parts(self._database, behind, write, atomic=True)).answers) if behind else 0
        if changed_count:
            self._emit(ZonesFollowed(tzdata_version(), changed_count))
        if behind:
            self._replanned, self._found_behind = behind[-1], True
        else:
            self._replanned, self._found_behind = zones.FIRST if self._found_behind else None, False
        return bool(behind)

    async def _until_resume_s(self) -> float:
        """Of the next pause that was not due, or that another session locked."""
        async with self._database.connection() as connection:
            next_s = await schedules.next_resume_s(connection, now=self._clock.database_now())
        return REST_S if next_s is None else min(max(next_s, AGAIN_S), REST_S)

    async def _resume_all(self, due: Sequence[UUID]) -> Contention | None:
        """Each in its own transaction: one that meets contention does not keep the others paused."""
        contention = None
        for job_id in due:
            try:
                async with self._database.transaction() as connection:
                    await connection.execute(BRIEFLY)
                    await recurring_jobs.resume_due(connection, SCHEDULER, job_id, now=self._clock.database_now())
            except Contention as error:
                contention = error
        return contention
