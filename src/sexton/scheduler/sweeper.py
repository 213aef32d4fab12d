"""Takes runs from dead workers, ends runs that exceed their time, and buries runs that did not start in time.

Dead means that this sweeper has itself watched the same heartbeat for the whole lease, on its own monotonic clock: rule "dead
only when watched". Only time spent watching counts, so after an outage of the database, or of the sweeper, no worker is dead
yet. The token fences a worker that loses a run, so a wrong decision costs a repetition, never a double claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

import msgspec

from sexton.clock import Clock
from sexton.domain.duty_cycle import DutyCycle
from sexton.domain.outcome import Cancelled, Lost, Missed, Outcome, TimedOut
from sexton.domain.run import Lease, report
from sexton.errors import DatabaseUnavailable
from sexton.ids import Rng
from sexton.store.database import Connection, Database
from sexton.store.fleet import workers
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import Emit, Swept, WorkerLost

BATCH = 500
# Between two looks while nothing runs. Silent workers do not matter then, but schedules wait no longer than this to be planned:
# rule "overdue work is anyone's".
QUIET_S = 2.0
NEARLY_S = 0.02  # a lease that runs out between two looks is checked after this time at the earliest


@dataclass(slots=True)
class _Sighting:
    beat: int
    lease_s: float
    watched_s: float = 0.0

    @property
    def left_s(self) -> float:
        return self.lease_s - self.watched_s


class Sweeper:
    name = "sweeper"

    def __init__(
        self,
        database: Database,
        *,
        lease_s: float,
        sweep_s: float,
        clock: Clock,
        emit: Emit,
        dice: Rng,
        to_plan: Callable[[], None] = lambda: None,
    ) -> None:
        """`to_plan` is called when the look finds work for the planner, so that the planner need not look by itself."""
        self._to_plan = to_plan
        self._database, self._clock, self._emit, self._dice = database, clock, emit, dice
        self._lease_s, self._sweep_s = lease_s, sweep_s
        self._sightings: dict[UUID, _Sighting] = {}
        self._looked_at: float | None = None
        self._sparing = DutyCycle()  # for the check of all running runs

    async def run_once(self) -> float:
        lost = overrun = missed = 0
        try:
            survey = await self._look()
            if survey.to_plan:
                self._to_plan()
            declared = await self._declare_lost(self._observe(survey))
            if survey.abandoned or declared:
                lost = await self._end_all(
                    lambda c: runs.abandoned(c, lease_s=self._lease_s, limit=BATCH, now=self._clock.database_now()),
                    lambda _: Lost("its worker stopped sending heartbeats"),
                )
            if survey.overrunning:
                overrun = await self._end_all(
                    lambda c: runs.overrunning(c, limit=BATCH, now=self._clock.database_now()),
                    _overran,
                )
            if survey.expired:
                missed = await self._end_all(
                    lambda c: runs.expired(c, limit=BATCH, now=self._clock.database_now()),
                    lambda _: Missed("it could not start in time: its latest start or its deadline has passed"),
                )
        except DatabaseUnavailable:
            self._sightings, self._looked_at = {}, None  # a failed look does not count
            raise
        if lost or overrun or missed:
            self._emit(Swept(lost, overrun, missed))
        return self._rest_s() if survey.running else max(self._sweep_s, QUIET_S)

    def _rest_s(self) -> float:
        """Seconds until the next look; sooner if a lease runs out before it."""
        left_s = min((one.left_s for one in self._sightings.values()), default=self._sweep_s)
        return min(self._sweep_s, max(left_s, NEARLY_S))

    async def _look(self) -> workers.Survey:
        began_s = self._clock.monotonic()
        is_thorough = self._sparing.is_due(began_s)
        try:
            async with self._database.connection() as connection:
                now = self._clock.database_now()
                return await workers.survey(connection, lease_s=self._lease_s, thorough=is_thorough, now=now)
        finally:
            if is_thorough:  # also if it took too long: heartbeats must be read even if the rest fails
                self._sparing.note(began_s, self._clock.monotonic())

    async def _declare_lost(self, silent: dict[UUID, int]) -> int:
        if not silent:
            return 0
        async with self._database.connection() as connection:
            declared = await workers.declare_lost(connection, silent, now=self._clock.database_now())
        for worker_id in declared:
            self._emit(WorkerLost(worker_id, self._sightings.pop(worker_id).watched_s))
        return len(declared)

    def _observe(self, survey: workers.Survey) -> dict[UUID, int]:
        """Records every heartbeat. Returns the workers whose heartbeat has not changed for a whole lease, the cluster's or
        their own."""
        now = self._clock.monotonic()
        # A long gap between two looks is our own absence (paused, starved): it says nothing about the workers.
        watched_s = 0.0 if self._looked_at is None else min(now - self._looked_at, self._lease_s / 3)
        self._looked_at = now
        for worker_id in self._sightings.keys() - survey.beats.keys():
            del self._sightings[worker_id]
        for worker_id, beat in survey.beats.items():
            sighting = self._sightings.get(worker_id)
            if sighting is None or sighting.beat != beat:
                self._sightings[worker_id] = _Sighting(beat, survey.leases_s.get(worker_id, self._lease_s))
            else:
                sighting.watched_s += watched_s
        return {worker_id: sighting.beat for worker_id, sighting in self._sightings.items() if sighting.left_s <= 0}

    async def _end_all(
        self, find: Callable[[Connection], Awaitable[list[runs.Overdue]]], outcome: Callable[[runs.Overdue], Outcome]
    ) -> int:
        """Locks a batch and ends it in the same transaction, until none is left."""
        ended = 0
        while True:
            async with self._database.transaction() as connection:
                found = await find(connection)
                if found:
                    reports = [
                        report(
                            _as_at_its_claim(run),
                            outcome(run),
                            self._dice,
                            started_s=0.0 if run.held_s is not None else None,
                            took_s=run.held_s,
                        )
                        for run in found
                    ]
                    await runs.finish(connection, reports, now=self._clock.database_now())
            ended += len(found)
            if len(found) < BATCH:
                return ended


def _overran(run: runs.Overdue) -> Outcome:
    """Rule "the sweeper ends overdue runs": its worker still sends heartbeats, but the run has not ended in time."""
    if run.lease.worker_id == callbacks.HOLDER:
        said = "its target did not call back"
        return Cancelled(f"cancelled on request; {said}") if run.cancel_requested else TimedOut(f"{said} in {run.held_s:.0f} s")
    return TimedOut(f"still running {run.held_s:.0f} s after its claim, past timeout and grace")


def _as_at_its_claim(run: runs.Overdue) -> Lease:
    """A report subtracts the time it was held from the time left before the deadline at its claim, not from the time left
    now."""
    if run.held_s is None or run.lease.deadline_left_s is None:
        return run.lease
    return msgspec.structs.replace(run.lease, deadline_left_s=run.lease.deadline_left_s + run.held_s)
