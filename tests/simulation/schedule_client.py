"""A client with recurring jobs: it writes, edits, pauses, resumes, fires and ends them during everything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sexton.domain.job import submission
from sexton.domain.retry import Retry
from sexton.domain.schedule import schedule
from sexton.domain.schedule.catch_up import CatchUp
from sexton.domain.schedule.document import ScheduleDocument, document
from sexton.domain.schedule.overlap import Overlap, Policy
from sexton.domain.schedule.recurrence import Recurrence
from sexton.errors import NotAllowedIn
from sexton.operations.caller import Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import recurring_jobs
from sexton.operations.versions import AtVersion
from sexton.store.work.jobs import JobView

from . import zone_update
from .actors import NEVER_S, TICK, Action, Actor
from .admin import SHARED, limit_named_by

if TYPE_CHECKING:
    from sexton.store.database import Connection

    from .world import World

SCHEDULE_CLIENT = Caller("schedule client")
SCHEDULE_COUNT = 4
ENDS_AT = datetime(2026, 3, 1, 0, 1, 40, tzinfo=UTC)  # of all schedules, so that the simulation can end
MAX_PARALLEL = 2


@dataclass
class Kept:
    id: UUID
    document: ScheduleDocument
    is_cancelled: bool = False  # or may be: the reply was lost
    has_changed_rule: bool = False


class ScheduleClientActor(Actor):
    def __init__(self, world: World) -> None:
        super().__init__("schedule client")
        self._world, self._database = world, world.database_for(self)
        self.kept: list[Kept] = []
        self.hasty: frozenset[str] = frozenset()  # what it does all the time
        self.zoned_rate = 0.3  # share of schedules in the simulated zone
        self.limited_rate = 0.2  # share of schedules whose fires share a limit with one-time jobs
        self.jitters: list[dict[str, Any] | None] = [None, None, {"max": 3}, {"max": 4, "both": True}]
        self._unanswered: ScheduleDocument | None = None
        self.actions = [
            Action("write", self._write),
            Action("edit", lambda: self._change(0.5, self._edit)),
            Action("pause", lambda: self._change(0.4, self._pause)),
            Action("resume", lambda: self._change(0.4, recurring_jobs.resume)),
            Action("fire", lambda: self._change(0.3, recurring_jobs.fire)),
            Action("end", lambda: self._change(0.05, self._end)),
        ]

    @property
    def is_done(self) -> bool:
        return len(self.kept) >= SCHEDULE_COUNT or self._world.clock.database_now() > ENDS_AT - timedelta(seconds=30)

    async def _write(self) -> float:
        """With a name, so that it is safe to send it again after a lost reply."""
        if self.is_done:
            return NEVER_S
        world = self._world
        chosen = self._unanswered = self._unanswered or self._document(world.rng)
        async with self._database.transaction() as connection:
            (written,) = await recurring_jobs.submit(connection, SCHEDULE_CLIENT, [chosen], now=world.clock.database_now())
        self._unanswered = None
        self.kept.append(Kept(written.id, chosen))
        world.journal.seen["schedule written"] += 1
        return world.rng.uniform(0.0, 10.0)

    def _document(self, rng: Random) -> ScheduleDocument:
        name = f"schedule-{len(self.kept)}"
        jitter = rng.choice(self.jitters)
        in_zone, every = rng.random() < self.zoned_rate, rng.choice([2, 3, 5, 11])
        rule = schedule(
            now=self._world.clock.database_now(),
            cron=zone_update.CRON if in_zone else None,
            timezone=zone_update.ZONE if in_zone else None,
            every=None if in_zone else every,
            jitter=jitter,
            end_at=ENDS_AT,
            max_fires=rng.choice([None, None, None, 12]),
            seed=f"default/{name}",
        )
        recurrence = Recurrence(
            overlap=_overlap(rng),
            catch_up=CatchUp(policy=rng.choice(["skip", "latest", "all"]), max_catch_up=3),
            on_resume=rng.choice(["skip", "latest", "all"]),
        )
        job = submission(
            TICK,
            {"n": 0},
            name=name,
            tenant="default",
            timeout=self._timeout_s(rng),
            start_within=rng.choice([None, None, 20]),
            max_lost=1000,
            retry=rng.choice([Retry.immediate(max_attempts=2), Retry.exponential(base=1, max=4, max_attempts=2)]),
            limit=self._limit(rng),
        )
        return document(job, rule, recurrence)

    def _limit(self, rng: Random) -> dict[str, Any] | None:
        return limit_named_by(SHARED, rng) if rng.random() < self.limited_rate else None

    def _timeout_s(self, rng: Random) -> int:
        """None if the database's clock is set, because a sweeper measures timeouts by it."""
        return 0 if self._world.fault_profile.clock_is_set else rng.choice([0, 6, 30])

    async def _change(self, chance: float, change: Callable[..., Awaitable[Any]]) -> float:
        world, rng = self._world, self._world.rng
        if not world.faults_on:
            return NEVER_S
        name = getattr(change, "__name__", "changed").strip("_")
        is_hasty = name in self.hasty
        if not self.kept or rng.random() > (1.0 if is_hasty else chance):
            return rng.uniform(1.0, 5.0)
        one = rng.choice(self.kept)
        try:
            async with self._database.transaction() as connection:
                await change(connection, SCHEDULE_CLIENT, one.id, now=world.clock.database_now())
        except NotAllowedIn:
            return rng.uniform(1.0, 5.0)
        world.journal.seen[f"schedule {name}"] += 1
        return rng.uniform(0.2, 1.0) if is_hasty else rng.uniform(2.0, 8.0)

    async def _edit(self, connection: Connection, caller: Caller, job_id: UUID, *, now: datetime) -> JobView:
        """Edits the task, the overlap policy or, less often, the rule."""
        rng = self._world.rng
        if now >= ENDS_AT - timedelta(seconds=15):  # no rule that is written now would fire again
            raise NotAllowedIn("edit", "pending")
        (one,) = [kept for kept in self.kept if kept.id == job_id]
        old = one.document
        job = submission(
            TICK,
            {"n": rng.randint(1, 1000)},
            name=old.name,
            tenant="default",
            timeout=self._timeout_s(rng),
            max_lost=1000,
            retry=Retry.immediate(max_attempts=2),
            limit=self._limit(rng),
        )
        assert not isinstance(old.recurrence, bytes)
        rule, recurrence = old.schedule, old.recurrence
        if rng.random() < 0.2:
            rule = schedule(now=now, every=rng.choice([2, 4, 7]), end_at=ENDS_AT, seed=f"default/{old.name}")
            one.has_changed_rule = True
        if rng.random() < 0.3:
            recurrence = Recurrence(overlap=_overlap(rng))
        edited = document(job, rule, Recurrence() if recurrence is None else recurrence)  # type: ignore[arg-type]
        return await recurring_jobs.edit(connection, caller, AtVersion(job_id), edited, now=now)

    async def _pause(self, connection: Connection, caller: Caller, job_id: UUID, *, now: datetime) -> JobView:
        """Every pause ends by itself, so that the simulation can end."""
        until = now + timedelta(seconds=self._world.rng.uniform(1.0, 20.0))
        return await recurring_jobs.pause(connection, caller, job_id, recurring_jobs.Pause("maintenance", until), now=now)

    async def _end(self, connection: Connection, caller: Caller, job_id: UUID, *, now: datetime) -> None:
        for kept in self.kept:
            kept.is_cancelled = kept.is_cancelled or kept.id == job_id
        await cancel_job(connection, caller, job_id, now=now)


def _overlap(rng: Random) -> Overlap:
    policies: list[Policy] = ["skip", "queue", "parallel", "replace"]
    return Overlap(rng.choice(policies), max_queued=3, max_parallel=MAX_PARALLEL)
