"""What the actors saw, kept outside the database."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from sexton.telemetry.events import SESSIONS_ENDED

from .actors import SETTINGS

if TYPE_CHECKING:
    from sexton.domain.job import Submission
    from sexton.store.work.dead_letters import ReplayedRun
    from sexton.store.work.jobs import Submitted

    from .actors import SimulatedHandle, WorkerActor
    from .world import World


@dataclass
class _Start:
    worker: WorkerActor
    handle: SimulatedHandle
    started_s: float


class Journal:
    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._starts: dict[UUID, list[_Start]] = {}
        self._cancelled: set[UUID] = set()
        self._at_most_once: set[UUID] = set()
        self._declared_dead: set[UUID] = set()
        self.acknowledged: set[UUID] = set()
        self.submitted_count = 0
        self.replayed_count = 0
        self.last_progress_s = 0.0  # when a run last started or ended
        # Run, worker, token (and status) of the reports that a worker believes to be recorded, and of the results that it
        # dropped.
        self.accepted: list[tuple[UUID, UUID | None, int, str]] = []
        self.refused: list[tuple[UUID, UUID, int]] = []
        self.told_dead: set[UUID] = set()  # workers that know that they were declared dead
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def submitted(self, job: Submission, answer: Submitted) -> None:
        self.submitted_count += 1
        self.acknowledged.add(answer.id)
        self._world.model.submitted(answer.id, job, created=answer.created)
        if job.at_most_once and (answer.created or job.unique is None):
            self._at_most_once.add(answer.id)

    def any_job(self, rng: Random, *, newest: int = 0) -> UUID | None:
        """Of the `newest` executions, if given."""
        return rng.choice(sorted(self.acknowledged)[-newest:]) if self.acknowledged else None

    def cancelled(self, job_id: UUID, asked_count: int) -> None:
        if asked_count == 0:
            self._cancelled.add(job_id)
            self.seen["cancelled pending"] += 1
        else:
            self.seen["cancelled running"] += 1

    def claimed(self, worker_id: UUID) -> None:
        if worker_id in self._declared_dead:
            self.violations.append(f"a worker that was declared dead claims nothing: {worker_id}")

    def worker_lost(self, worker_id: UUID, reason: str) -> None:
        """A live worker without a fault may not be declared dead. An outage that hit all processes does not count as a fault of
        one."""
        self.seen[f"worker lost: {reason}"] += 1
        self._declared_dead.add(worker_id)
        for actor in self._world.live_workers():
            ailed = actor.was_cut_off_since(actor.beaten_s) or actor.stood_still_since(actor.beaten_s)
            # A fault of its heartbeat may cost the second in which it announces a new session.
            ailed = ailed or (reason == SESSIONS_ENDED and actor.hindered_s >= actor.beaten_s)
            if actor.worker.worker_id == worker_id and not ailed:
                self.violations.append(f"no worker is declared dead because of an outage: {actor.name}")

    def refused_by(self, worker_id: UUID, run_id: UUID, token: int) -> None:
        """A worker that learns that it was declared dead stops everything, even a run with a longer lease that was not swept
        yet."""
        if worker_id not in self.told_dead:
            self.refused.append((run_id, worker_id, token))

    def look_at_the_silent(self) -> None:
        """A worker that cannot send heartbeats stops its work before others may take it; a paused worker does so when it
        continues."""
        now = self._world.clock.monotonic()
        for actor in self._world.live_workers():
            if actor.is_paused or self._world.is_rushing(actor):
                continue
            for handle in actor.running:
                lease_s = max(SETTINGS.lease_s, handle.lease.policy.lease_s or 0.0)
                if not handle.done.done() and now - actor.beaten_s >= lease_s:
                    self.violations.append(f"a worker that could not beat for a lease executes nothing: {actor.name}")

    def replayed(self, replayed: list[ReplayedRun]) -> None:
        self.replayed_count += len(replayed)
        for run in replayed:
            self._at_most_once.discard(run.job_id)

    def started(self, worker: WorkerActor, handle: SimulatedHandle) -> None:
        lease = handle.lease
        before = self._starts.setdefault(lease.run_id, [])
        if lease.job_id in self._cancelled:
            self.violations.append(f"a cancelled job never starts: {lease.job_id}")
        if before and lease.job_id in self._at_most_once:
            self.violations.append(f"an at-most-once job starts once: {lease.job_id}")
        if any(start.handle.lease.token >= lease.token for start in before):
            self.violations.append(f"a token grows with every claim: {lease.run_id}")
        # Two executions at once are only possible while the first worker is paused and cannot know, and for the grace that it
        # then gives its handler: a partition is no excuse. Also if a sweeper believed a clock that was set forward
        # (docs/operations.md).
        now = self._world.clock.monotonic()
        for start in before:
            excused = start.worker.stood_still_since(max(start.started_s, now - SETTINGS.worker_grace_s))
            excused = excused or self._world.clock_set_forward_s >= start.started_s
            if not start.handle.done.done() and start.worker.alive and not excused:
                self.violations.append(f"no run is under two live leases: {lease.run_id}")
        self.last_progress_s = now
        before.append(_Start(worker, handle, now))
        self._world.note(f"{worker.name} starts {lease.run_id} under token {lease.token}")
        self.seen["started"] += 1
        if before[:-1]:
            self.seen["started again"] += 1
