"""Writes the next runs of recurring jobs ahead of time, so that there is nothing to compute when they are due.

It keeps no state: an index on `plan_at` finds the schedules to plan, and the cursor moves by compare-and-set, so any number of
planners may look at the same schedule (rule "plan by compare-and-set"). A schedule that another session has locked is left for
the next pass (rule "never wait inside a batch")."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.partition import ALL, Scan
from sexton.domain.schedule.zone import tzdata_version
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import due_schedules, recurring_jobs, replan
from sexton.store.database import Database
from sexton.store.work import failures, schedules
from sexton.store.work.schedules import ToPlan
from sexton.telemetry.events import Emit, FiresMissed, PausedAfterFailures, Planned, ServiceFailed, ZonesFollowed

from .overdue_check import OVERDUE_S, Led, OverdueCheck

REST_S = 2.0
WOKEN_REST_S = 60.0  # where the sweeper wakes it
DUE_SOON_S = 3.0
LEFT_LIMIT = 1_000  # locked jobs that one look for late fires looks behind
FAILING_S = 10.0  # between two looks for jobs that must pause, in any partition
RECALL_S = 10.0  # between two looks for fires that no promoter promoted


class Planner:
    name = "planner"

    def __init__(self, database: Database, led: Led, *, limit: int, clock: Clock, emit: Emit, rest_s: float = REST_S) -> None:
        """`rest_s` may be longer than rule "any node does overdue work" allows if another part looks and wakes the planner."""
        self._rest_s = rest_s
        self._database, self._led, self._limit, self._clock, self._emit = database, led, limit, clock, emit
        self._overdue_check = OverdueCheck(led, clock)
        self._recalled_at: float | None = None
        self._failing_at = -FAILING_S

    async def run_once(self) -> float:
        if not await self._recall():
            return 0.0
        seen = await self._plan(Scan(self._led(), self._limit))
        if self._overdue_check.is_due():
            seen += await self._plan(Scan(ALL, self._limit, OVERDUE_S))
        for job_id in await self._failing(seen):
            await self._pause(job_id)
        if behind := replan.with_older_zones(seen):
            await self._follow(behind)
        return 0.0 if len(seen) >= self._limit else self._rest_s

    async def _plan(self, scan: Scan) -> list[ToPlan]:
        done = await due_schedules.plan_fires(
            self._database,
            SCHEDULER,
            scan,
            announce_within_s=DUE_SOON_S,
            unforeseen=self._failed,
            now=self._clock.database_now(),
        )
        if done.planned.ids:
            self._emit(Planned(len(done.planned.ids), overdue=scan.is_for_others))
        if done.planned.missed_count:
            self._emit(FiresMissed(done.planned.missed_count))
        return done.seen

    async def _failing(self, seen: Sequence[ToPlan]) -> list[UUID]:
        """After planning, so that it misses no failure: every burial makes the planner look at the job again
        (`sexton.bury_recurring`), unless another session has locked the job: then it is found here, `FAILING_S` later. A job
        without `pause_after` costs nothing."""
        watched = [one.id for one in seen if "pause_after" in (one.recurrence_json or "")]
        is_due = self._clock.monotonic() - self._failing_at >= FAILING_S
        if not watched and not is_due:
            return []
        async with self._database.connection() as connection:
            if is_due:
                self._failing_at = self._clock.monotonic()
                watched += await failures.reached(connection, limit=self._limit)
                if not watched:
                    return []
            return [one.job_id for one in await failures.consecutive(connection, watched)]

    async def _pause(self, job_id: UUID) -> None:
        async with self._database.transaction() as connection:
            failing = await recurring_jobs.pause_failing(connection, SCHEDULER, job_id, now=self._clock.database_now())
        if failing is not None:
            self._emit(PausedAfterFailures(job_id, failing.failed_count, failing.error))

    async def _follow(self, behind: Sequence[UUID]) -> None:
        changed_count = await due_schedules.follow_zones(self._database, SCHEDULER, behind, now=self._clock.database_now())
        if changed_count:
            self._emit(ZonesFollowed(tzdata_version(), changed_count))

    async def _recall(self) -> bool:
        """False if there may be more. It comes before planning, so that one decision covers a whole gap."""
        now = self._clock.monotonic()
        if self._recalled_at is not None and now - self._recalled_at < RECALL_S:
            return True
        left: list[UUID] = []
        while len(left) <= LEFT_LIMIT:
            async with self._database.connection() as connection:
                done = await schedules.recall(
                    connection, partitions=ALL, limit=self._limit, without=left, now=self._clock.database_now()
                )
            if done.recalled_count:
                return False
            if not done.left:
                break
            left += done.left  # locked jobs that fill a batch must not hide the jobs behind them
        self._recalled_at = now
        return True

    def _failed(self, error: Exception) -> None:
        self._emit(ServiceFailed(self.name, error))
