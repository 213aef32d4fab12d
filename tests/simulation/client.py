"""A client that submits one-time jobs, cancels, pauses, edits and replays them; sometimes twice, because a reply was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from sexton.domain.job import Submission, Unique, submission
from sexton.domain.retry import Retry
from sexton.errors import KeyReused, NotAllowedIn
from sexton.operations import definition_change, one_time_jobs, replay
from sexton.operations.caller import Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.versions import AtVersion
from sexton.store.work import dead_letters, jobs

from .actors import EAGER, EFFECT, NEVER_S, NEWER, PLAIN, POISON, QUEUES, Action, Actor
from .admin import BOTH, HOLD_S, ORDERED, OWNED, PACED, PLAIN_TENANT, RATED, SHARED, limit_named_by

if TYPE_CHECKING:
    from sexton.store.database import Connection

    from .world import World

CLIENT = Caller("client")
# It ends after it has ended workers, or by a cancel, and in no other way.
POISONOUS = {"timeout": 0, "deadline": None, "start_within": None, "delivery": None, "unique": None, "lease": None}
RETRIES = (Retry.immediate(max_attempts=4), Retry.exponential(base=1, max=8), Retry.after(1, 2))


class ClientActor(Actor):
    def __init__(self, world: World) -> None:
        super().__init__("client")
        self._world, self._database = world, world.database_for(self)
        self._unanswered: list[Submission] | None = None
        self._held: set[UUID] = set()  # jobs that are, or may be, paused
        self.limited_rate = 0.4  # share of jobs that name a limit
        self.is_hasty = False  # pauses and edits all the time
        self.insisted: Callable[[], dict[str, Any]] = dict  # options that every job gets in addition to the random ones
        self.keys = [SHARED, SHARED, ORDERED, PACED, RATED, BOTH]
        # With a random generator of its own, so that simulations without poison keep their history.
        self._poison_rng = Random(f"poison {world.seed}")
        self.poison_count, self.poison_rate = self._poison_rng.choice([0, 0, 1, 2]), 0.1
        self.actions = [
            Action("submit", self._submit, weight=lambda: 1 if world.faults_on else EAGER),
            Action("cancel", self._cancel),
            Action("replay", self._replay),
            Action("pause job", lambda: self._change(0.2, self._pause), weight=lambda: 4 if self.is_hasty else 1),
            Action("edit job", lambda: self._change(0.4, self._edit)),
            Action("resume jobs", self._resume, due_s=NEVER_S),
        ]

    @property
    def is_done(self) -> bool:
        return not self._held

    async def _submit(self) -> float:
        rng, world = self._world.rng, self._world
        if world.journal.submitted_count >= world.job_limit:
            return NEVER_S
        batch = self._unanswered or [self._job(rng) for _ in range(rng.randint(1, 4))]
        # Without a key, a lost reply means that the result is unknown; with a key it is safe to send it again.
        self._unanswered = [job for job in batch if job.key is not None] or None
        try:
            async with self._database.connection() as connection:
                answers = await jobs.submit(connection, batch, now=world.clock.database_now())
        except KeyReused:
            self._unanswered = None
            return 1.0
        self._unanswered = None
        for job, answer in zip(batch, answers, strict=True):
            world.journal.submitted(job, answer)
        return rng.uniform(0.0, 4.0)

    def _job(self, rng: Random) -> Submission:
        number = self._world.journal.next_number()
        task = rng.choices([PLAIN, EFFECT, NEWER], weights=[50, 40, 10])[0]
        payload = {"n": number % 5 if rng.random() < 0.2 else number}
        options: dict[str, Any] = {
            "delay": rng.choice([None, None, rng.uniform(0, 20)]),
            "queue": rng.choice([None, None, *QUEUES]),
            "tenant": rng.choice([None, None, None, OWNED, PLAIN_TENANT]),
            "key": f"key-{number}" if rng.random() < 0.4 else None,
            "unique": Unique.of("payload") if rng.random() < 0.1 else None,
            "delivery": "at_most_once" if rng.random() < 0.1 else None,
            "timeout": rng.choice([0, 0, 6, 30]),
            "deadline": rng.choice([None, None, None, 60]),
            "start_within": rng.choice([None, None, None, 20]),
            "lease": 12 if rng.random() < 0.2 and not self._world.fault_profile.clock_is_set else None,
            "max_lost": rng.choice([1000] * 9 + [2]),
            "retry": rng.choice(RETRIES),
            "limit": limit_named_by(rng.choice(self.keys), rng) if rng.random() < self.limited_rate else None,
        }
        options |= self.insisted()
        if self.poison_count and self._poison_rng.random() < self.poison_rate:
            self.poison_count -= 1
            return submission(POISON, payload, **options | POISONOUS | {"max_lost": self._poison_rng.choice([2, 3])})
        return submission(task, payload, **options)

    async def _cancel(self) -> float:
        rng, world = self._world.rng, self._world
        target = world.journal.any_job(rng)
        if target is None or rng.random() < 0.7:
            return rng.uniform(1.0, 5.0)
        before = world.model.standing(target)
        world.model.cancel(target, "asked")
        try:
            async with self._database.transaction() as connection:
                done = await cancel_job(connection, CLIENT, target, now=world.clock.database_now())
            world.journal.cancelled(target, done.asked_count)
            world.model.cancel(target, "done")
        except NotAllowedIn:
            world.model.cancel(target, before)
        return rng.uniform(2.0, 10.0)

    async def _replay(self) -> float:
        rng, world = self._world.rng, self._world
        async with self._database.transaction() as connection:
            letters = await dead_letters.find(connection, dead_letters.Filter(), limit=5)
            chosen: list[UUID] = [letter.id for letter in letters if rng.random() < 0.5]
            if chosen and world.journal.replayed_count < 5:
                replayed = await replay.replay(connection, CLIENT, chosen, now=world.clock.database_now())
                world.journal.replayed(replayed)
        return rng.uniform(5.0, 20.0)

    async def _change(self, chance: float, change: Callable[[Connection, UUID], Awaitable[Any]]) -> float:
        world, rng = self._world, self._world.rng
        if not world.faults_on:
            return NEVER_S
        target = world.journal.any_job(rng, newest=6)
        if target is None or (rng.random() > chance and not self.is_hasty):
            return rng.uniform(2.0, 8.0)
        try:
            async with self._database.transaction() as connection:
                await change(connection, target)
        except NotAllowedIn:
            return rng.uniform(0.5, 2.0)
        world.journal.seen[f"job {getattr(change, '__name__', '').strip('_')}"] += 1
        return rng.uniform(0.2, 1.0) if self.is_hasty else rng.uniform(2.0, 8.0)

    async def _pause(self, connection: Connection, job_id: UUID) -> None:
        """For a short time, so that the simulation can end."""
        world = self._world
        self._held.add(job_id)
        self.actions[-1].due_s = world.clock.monotonic() + world.rng.uniform(*HOLD_S)
        await one_time_jobs.pause(connection, CLIENT, job_id, now=world.clock.database_now())

    async def _resume(self) -> float:
        async with self._database.transaction() as connection:
            for job_id in sorted(self._held):
                try:
                    await one_time_jobs.resume(connection, CLIENT, job_id, now=self._world.clock.database_now())
                except NotAllowedIn:
                    continue  # ended by now
        self._held.clear()
        self._world.journal.seen["jobs resumed"] += 1
        return NEVER_S

    async def _edit(self, connection: Connection, job_id: UUID) -> None:
        """Changes where the job waits and when it is due, but not its expected outcome."""
        rng = self._world.rng
        changes = definition_change.Changes(
            payload=msgspec.Raw(b'{"n": %d}' % rng.randint(1000, 2000)),
            queue=rng.choice(QUEUES),
            lane=rng.randint(0, 3),
            delay_s=msgspec.UNSET if rng.random() < 0.5 else rng.uniform(0, 5),
        )
        await one_time_jobs.edit(connection, CLIENT, AtVersion(job_id), changes, now=self._world.clock.database_now())
