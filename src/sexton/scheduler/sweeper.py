"""Takes runs from dead workers, ends runs that exceed their time, and buries runs that did not start in time.

Dead means that this sweeper has itself watched the same heartbeat for the whole lease, on its own monotonic clock, or has
watched the end of the worker's sessions (`ended_sessions.py`): rule "dead only when watched". Only time spent watching counts,
so after an outage of the database, or of the sweeper, no worker is dead yet. The token fences a worker that loses a run, so a
wrong decision costs a repetition, never a double claim.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

import msgspec

from sexton.clock import Clock
from sexton.domain.duty_cycle import DutyCycle
from sexton.domain.outcome import Cancelled, Lost, Missed, Outcome, TimedOut
from sexton.domain.run import Lease, Report, report
from sexton.domain.states import RunState
from sexton.errors import Contention, DatabaseUnavailable
from sexton.ids import Rng
from sexton.operations.bisection import BRIEFLY
from sexton.store.database import Connection, Database, client_end
from sexton.store.fleet import workers
from sexton.store.work import callbacks, runs
from sexton.telemetry.events import SESSIONS_ENDED, Emit, RunsLost, Swept, WorkerLost

from .ended_sessions import EndedSessions

BATCH = 500
ALONE_BATCH = 50  # runs ended one by one in a statement: if all of them are locked it takes 250 ms
# Between two looks while nothing runs. Silent workers do not matter then, but schedules wait no longer than this to be planned:
# rule "any node does overdue work".
QUIET_S = 2.0
NAMED_LIMIT = 20  # lost runs that one event names
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
        rng: Rng,
        to_plan: Callable[[], None] = lambda: None,
    ) -> None:
        """`to_plan` is called when the look finds work for the planner, so that the planner need not look by itself."""
        self._to_plan = to_plan
        self._database, self._clock, self._emit, self._rng = database, clock, emit, rng
        self._lease_s, self._sweep_s = lease_s, sweep_s
        self._sightings: dict[UUID, _Sighting] = {}
        self._ended_sessions = EndedSessions()
        self._looked_at: float | None = None
        self._duty_cycle = DutyCycle()  # for the check of all running runs

    async def run_once(self) -> float:
        lost = overrun = missed = quarantined = 0
        try:
            survey = await self._look()
            if survey.to_plan:
                self._to_plan()
            ended, silent = self._observe_sessions(survey), self._observe(survey)
            declared = await self._declare_lost(silent) + await self._declare_ended(ended)
            if survey.abandoned or declared:
                lost, quarantined = await self._end_all(
                    lambda c: runs.abandoned(c, lease_s=self._lease_s, limit=BATCH, now=self._clock.database_now()),
                    _lost,
                )
            if survey.overrunning:
                overrun, _ = await self._end_all(
                    lambda c: runs.overrunning(c, limit=BATCH, now=self._clock.database_now()),
                    _overran,
                )
            if survey.expired:
                missed, _ = await self._end_all(
                    lambda c: runs.expired(c, limit=BATCH, now=self._clock.database_now()),
                    lambda _: Missed("it could not start in time: its latest start or its deadline has passed"),
                )
        except DatabaseUnavailable:
            self._sightings, self._looked_at = {}, None  # a failed look does not count
            self._ended_sessions.forget()
            raise
        if lost or overrun or missed:
            self._emit(Swept(lost, overrun, missed, quarantined))
        return self._rest_s() if survey.running else max(self._sweep_s, QUIET_S)

    def _rest_s(self) -> float:
        """Seconds until the next look; sooner if a lease runs out before it."""
        left_s = [one.left_s for one in self._sightings.values()]
        if (rest_s := self._ended_sessions.rest_s) is not None:
            left_s.append(rest_s)
        return min(self._sweep_s, max(min(left_s, default=self._sweep_s), NEARLY_S))

    async def _look(self) -> workers.Survey:
        began_s = self._clock.monotonic()
        is_thorough = self._duty_cycle.is_due(began_s)
        try:
            async with self._database.connection() as connection:
                return await workers.survey(
                    connection,
                    lease_s=self._lease_s,
                    thorough=is_thorough,
                    end=client_end(connection),
                    last_session=self._ended_sessions.own,
                    now=self._clock.database_now(),
                )
        finally:
            if is_thorough:  # also if it took too long: heartbeats must be read even if the rest fails
                self._duty_cycle.note(began_s, self._clock.monotonic())

    async def _declare_lost(self, silent: dict[UUID, int]) -> int:
        if not silent:
            return 0
        async with self._database.connection() as connection:
            declared = await workers.declare_lost(connection, silent, now=self._clock.database_now())
        for worker_id in declared:
            self._emit(WorkerLost(worker_id, self._sightings.pop(worker_id).watched_s))
        return len(declared)

    async def _declare_ended(self, ended: dict[UUID, int]) -> int:
        if not ended:
            return 0
        async with self._database.connection() as connection:
            now = self._clock.database_now()
            declared = await workers.declare_lost(connection, ended, lease_left_s=self._lease_s, now=now)
        for worker_id in declared:
            self._emit(WorkerLost(worker_id, self._sightings.pop(worker_id).watched_s, SESSIONS_ENDED))
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

    def _observe_sessions(self, survey: workers.Survey) -> dict[UUID, int]:
        """Returns the workers whose sessions have ended for good."""
        gap_s = 0.0 if self._looked_at is None else self._clock.monotonic() - self._looked_at
        ended = self._ended_sessions.observe(survey, gap_s=gap_s)
        return {worker_id: survey.beats[worker_id] for worker_id in ended}

    async def _end_all(
        self, find: Callable[[Connection], Awaitable[list[runs.Overdue]]], outcome: Callable[[runs.Overdue], Outcome]
    ) -> tuple[int, int]:
        """Ends batches until none is left. If one meets contention, each of its runs is ended by itself, and those that hold
        what another session has locked are left for the next pass (rule "never wait inside a batch"). Returns how many ended,
        and how many of them are in quarantine now."""
        ended = quarantined = 0
        together = True
        while True:
            try:
                found_count, finished = await self._end_batch(find, outcome, together=together)
            except Contention:
                if not together:
                    raise
                together = False
                continue
            ended += len(finished)
            quarantined += sum(one.state == RunState.QUARANTINED for one in finished)
            if found_count < BATCH or not finished:
                return ended, quarantined

    async def _end_batch(
        self,
        find: Callable[[Connection], Awaitable[list[runs.Overdue]]],
        outcome: Callable[[runs.Overdue], Outcome],
        *,
        together: bool,
    ) -> tuple[int, list[runs.Finished]]:
        """Locks a batch and ends it in the same transaction. Returns how many were found, and those that ended."""
        async with self._database.transaction() as connection:
            found = await find(connection)
            if not found:
                return 0, []
            reports = [self._report(run, outcome(run)) for run in found]
            now = self._clock.database_now()
            if together:
                await connection.execute(BRIEFLY)
                finished = await runs.finish(connection, reports, now=now)
            else:
                finished = []
                for start in range(0, len(reports), ALONE_BATCH):
                    ended, _ = await runs.finish_each(connection, reports[start : start + ALONE_BATCH], now=now)
                    finished += ended
        self._name_lost(found, finished)
        return len(found), finished

    def _name_lost(self, found: list[runs.Overdue], finished: list[runs.Finished]) -> None:
        """Those that will not run again."""
        ended = {one.run_id for one in finished if one.state is None}
        lost = [run for run in found if run.task is not None and run.lease.run_id in ended and not run.cancel_requested]
        if lost:
            named = tuple(f"{run.task} {run.lease.run_id}" for run in lost[:NAMED_LIMIT])
            self._emit(RunsLost(len(lost), named))

    def _report(self, run: runs.Overdue, outcome: Outcome) -> Report:
        started_s = 0.0 if run.held_s is not None else None
        return report(_as_at_its_claim(run), outcome, self._rng, started_s=started_s, took_s=run.held_s)


def _lost(run: runs.Overdue) -> Outcome:
    """Rule "suspects apart": a loss proves something against the run only if its worker held no other run."""
    others = run.held_count - 1
    held = "the worker held no other run" if others == 0 else f"the worker held {others} other run{'s' * (others > 1)}"
    reason = f"{run.lost_reason or 'its worker stopped sending heartbeats'}; {held}"
    if run.with_parent:
        reason += "; the worker that had started it was lost as well"
    return Lost(reason, run.held_count, run.with_parent)


def _overran(run: runs.Overdue) -> Outcome:
    """Rule "the sweeper ends overdue runs": its worker still sends heartbeats, but the run has not ended in time."""
    if run.lease.worker_id == callbacks.HOLDER:
        if run.cancel_requested:
            return Cancelled("cancelled on request; its target did not call back")
        return TimedOut(f"its target did not call back in {run.held_s:.0f} s")
    return TimedOut(f"still running {run.held_s:.0f} s after its claim, past timeout and grace")


def _as_at_its_claim(run: runs.Overdue) -> Lease:
    """The lease with the time that was left before the deadline when the run was claimed: a report subtracts the time that
    the run was held."""
    if run.held_s is None or run.lease.deadline_left_s is None:
        return run.lease
    return msgspec.structs.replace(run.lease, deadline_left_s=run.lease.deadline_left_s + run.held_s)
