"""The real services of the product, each stepped by hand: a scheduler node, a worker whose handlers end when the world says so,
and people who submit, cancel and replay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sexton.domain.job import Submission, Unique, submission
from sexton.domain.retry import Retry
from sexton.domain.run import Lease
from sexton.errors import Contention, DatabaseUnavailable, KeyReused, LeaseLost, NotAllowedIn, PermanentError, Snooze
from sexton.handlers.context import Call, Context, Stopped
from sexton.registry import Definition, Registry
from sexton.scheduler.guardian import Guardian
from sexton.scheduler.janitor import Janitor
from sexton.scheduler.leadership import Leadership
from sexton.scheduler.planner import WOKEN_REST_S, Planner
from sexton.scheduler.promoter import Promoter
from sexton.scheduler.sweeper import Sweeper
from sexton.service import Wake
from sexton.settings import Settings
from sexton.store import dead_letters, jobs
from sexton.store.sql import statements
from sexton.worker.execution import Phase
from sexton.worker.worker import Worker

from . import town
from .timers import ManualTimers

if TYPE_CHECKING:
    from sexton.domain.schedule.zone import Release
    from sexton.store.database import Database

    from .world import World

PLAIN, EFFECT, TICK = "plain", "effect", "tick"  # the last of recurring jobs
# Room enough for two workers to take over what the third had.
SETTINGS = Settings(worker_concurrency=12, worker_grace_s=2.0, lease_s=6.0, beat_s=1.5, sweep_s=1.5, promote_limit=5)

NEVER_S = 1e9
BEAT = statements("fleet")["beat"]

Step = Callable[[], Awaitable[float]]


@dataclass
class Action:
    """One thing an actor may do next: not before `due_s`, unless something wakes it."""

    name: str
    run: Step
    due_s: float = 0.0
    woken: Wake | None = None
    weight: Callable[[], int] = lambda: 1  # how many of its kind wait
    halfway: tuple[asyncio.Task[float], asyncio.Future[None]] | None = None  # it stands still between two statements

    def is_due(self, now_s: float) -> bool:
        return self.due_s <= now_s or (self.woken is not None and self.woken.is_set)


@dataclass(eq=False)
class Actor:
    name: str
    actions: list[Action] = field(default_factory=list)
    partitioned_until_s: float = 0.0  # it goes on, but cannot reach the database
    pauses: list[float] = field(default_factory=list)  # until when, of all there were
    partitions: list[float] = field(default_factory=list)
    alive: bool = True
    release: Release = town.OLD  # its time zone data
    _paused_until_s: float | None = None  # its process stands still

    @property
    def kind(self) -> str:
        return self.name.partition("-")[0]

    @property
    def is_paused(self) -> bool:
        return self._paused_until_s is not None

    def pause(self, until_s: float) -> None:
        self._paused_until_s = until_s
        self.pauses.append(until_s)

    def resume(self, now_s: float) -> bool:
        """True if its pause is over now."""
        if self._paused_until_s is None or self._paused_until_s > now_s:
            return False
        self._paused_until_s = None
        return True

    def cut_off(self, until_s: float) -> None:
        self.partitioned_until_s = until_s
        self.partitions.append(until_s)

    def was_cut_off_since(self, since_s: float) -> bool:
        return any(until_s >= since_s for until_s in self.partitions)

    def stood_still_since(self, since_s: float) -> bool:
        return any(until_s >= since_s for until_s in self.pauses)

    def feel_time(self) -> None:
        """Time has passed for this process."""

    def answered(self, query: str) -> None:
        """The reply to one of its statements has come through."""

    def wake(self, *names: str) -> None:
        for action in self.actions:
            if action.name in names:
                action.due_s = 0.0


class SchedulerActor(Actor):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(name)
        self.release = world.release()
        database: Database = world.database_for(self)
        leadership = Leadership(database, world.new_id(), name, None, clock=world.clock, emit=world.heard)
        promoter = Promoter(database, lambda: leadership.partitions, limit=5, clock=world.clock, emit=world.heard)
        self.sweeper = Sweeper(
            database,
            lease_s=SETTINGS.lease_s,
            sweep_s=SETTINGS.sweep_s,
            clock=world.clock,
            emit=world.heard,
            dice=world.dice,
            to_plan=lambda: self.wake("planner"),
        )
        janitor = Janitor(database, history_days=90, dead_letter_days=30, clock=world.clock, emit=world.heard)
        planner = Planner(
            database, lambda: leadership.partitions, limit=5, clock=world.clock, emit=world.heard, rest_s=WOKEN_REST_S
        )
        guardian = Guardian(database, clock=world.clock, emit=world.heard)
        self.actions = [
            Action("leadership", leadership.run_once),
            Action("planner", planner.run_once),
            Action("guardian", guardian.run_once),
            Action("promoter", promoter.run_once),
            Action("sweeper", self.sweeper.run_once),
            Action("janitor", janitor.run_once),
        ]


class SimulatedHandle:
    """A handler under way, until `ends_s`. It stops earlier when asked only if its nature is to listen."""

    def __init__(self, call: Call, context: Context, lease: Lease, *, ends_s: float, listens: bool) -> None:
        self.call, self.context, self.lease, self.ends_s, self.listens = call, context, lease, ends_s, listens
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.freed = self.done
        self.done.add_done_callback(lambda done: done.exception())  # seen, also where nobody asks any more

    def ask_to_stop(self) -> None:
        if self.listens and not self.done.done():
            self.done.set_exception(Stopped("asked to stop"))

    def force_stop(self) -> bool:
        if not self.done.done():
            self.done.set_exception(Stopped("killed"))
        return True


class WorkerActor(Actor):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(name)
        self._world = world
        self.running: list[SimulatedHandle] = []
        self.beaten_s = world.clock.monotonic()
        self.timers = ManualTimers(world.clock)
        registry = Registry()
        for task in (PLAIN, EFFECT, TICK):
            registry.add(Definition(task, lambda _ctx: None, __name__, task))
        database = world.database_for(self)
        self.worker = Worker(
            database,
            registry,
            SETTINGS,
            timers=self.timers,
            clock=world.clock,
            emit=world.heard,
            dice=world.dice,
            poll_s=2.0,
            handlers=dict.fromkeys((PLAIN, EFFECT, TICK), self),
            new_id=world.new_id,
            looks_by_beat=True,
        )
        self._heartbeat = self.worker.make_heartbeat(database, lambda call: call())
        _, second = self.worker.intakes[0].hands
        self.actions = [
            Action("heartbeat", self._beat),
            Action("intake", self.worker.intakes[0].run_once, woken=self.worker.intakes[0].wake),
            Action("second hand", second.run_once, woken=second.wake),
            Action("reporter", self.worker.reporter.run_once, woken=self.worker.reporter.wake),
            Action("teller", self._tell, due_s=NEVER_S),
            Action("handler", self._end_one, due_s=NEVER_S, weight=lambda: max(1, len(self._ripe()))),
        ]
        self._teller, self._handlers = self.actions[-2:]

    def start(self, call: Call, context: Context) -> SimulatedHandle:
        """The worker's `Handler`: this actor plays all of them."""
        world = self._world
        ends_s = world.clock.monotonic() + world.dice.uniform(*world.weather.handler_s)
        held = self.worker.holdings.all()
        lease = next(e.claimed.lease for e in held if e.claimed.lease.run_id == call.run_id)
        handle = SimulatedHandle(call, context, lease, ends_s=ends_s, listens=world.dice.random() < 0.7)
        self.running.append(handle)
        self._handlers.due_s = min(self._handlers.due_s, ends_s)
        world.journal.started(self, handle)
        return handle

    def wake(self, *names: str) -> None:
        super().wake(*names)
        if "intake" in names:
            self.worker.hear("")

    def feel_time(self) -> None:
        if self.alive:
            self.timers.fire()
            self._heartbeat.watch()  # several times a second: the first asks, a later one forces
            self._heartbeat.watch()

    def answered(self, query: str) -> None:
        if query == BEAT:
            self.beaten_s = self._world.clock.monotonic()

    def drain(self) -> None:
        """SIGTERM without patience: take no more, stop what runs, hand it back, leave."""
        self.worker.draining = True
        self.worker.intakes[0].close("draining")
        for execution in self.worker.holdings.all():
            execution.release("draining")

    async def _beat(self) -> float:
        if self.worker.draining and not len(self.worker.holdings):
            self._world.replace(self)
            return 0.0
        self.worker.pulse.felt_at = self._world.clock.monotonic()
        return await self._heartbeat.run_once()

    async def _tell(self) -> float:
        await self.worker.teller.run_once()
        return NEVER_S

    async def _end_one(self) -> float:
        """One of the handlers whose time has come ends, somehow."""
        dice, now = self._world.dice, self._world.clock.monotonic()
        ripe = self._ripe()
        if ripe:
            handle = dice.choice(ripe)
            if handle.call.task == PLAIN and dice.random() < 0.2:
                handle.context.log("half way")
                handle.ends_s += dice.uniform(0.1, 3.0)
                self._teller.due_s = now + dice.uniform(0.0, 1.0)
            else:
                await self._end(handle, dice)
        self.running = [handle for handle in self.running if not handle.done.done()]
        return min((handle.ends_s for handle in self.running), default=NEVER_S) - now

    def _ripe(self) -> list[SimulatedHandle]:
        now = self._world.clock.monotonic()
        return [handle for handle in self.running if handle.ends_s <= now and not handle.done.done()]

    async def _end(self, handle: SimulatedHandle, dice: Random) -> None:
        try:
            outcome = self._outcome(handle, dice)
            if handle.call.task == EFFECT:
                async with handle.context.transaction() as connection:
                    await connection.fetch("INSERT INTO public.effects (job_id) VALUES ($1)", handle.call.job_id)
                    if isinstance(outcome, BaseException):
                        raise outcome
        except (DatabaseUnavailable, Contention, LeaseLost, ValueError, PermanentError, Snooze) as error:
            outcome = error
        if isinstance(outcome, LeaseLost):
            self._world.journal.seen["effect rolled back"] += 1
        if handle.done.done():
            return
        if isinstance(outcome, BaseException):
            handle.done.set_exception(outcome)
        else:
            handle.done.set_result(outcome)

    def _outcome(self, handle: SimulatedHandle, dice: Random) -> Any:
        # A snooze asks for a second start, so a job that must start once at most does not do it.
        snooze = 0 if handle.lease.at_most_once else 8
        outcomes = [{"ok": True}, ValueError("no luck"), PermanentError("hopeless"), Snooze(dice.uniform(0, 10))]
        return dice.choices(outcomes, weights=[70, 18, 4, snooze])[0]

    @property
    def executing_count(self) -> int:
        return sum(execution.phase is Phase.RUNNING for execution in self.worker.holdings.all())


class PeopleActor(Actor):
    """Submits, cancels, replays; sometimes the same thing twice, because a reply got lost."""

    def __init__(self, world: World) -> None:
        super().__init__("people")
        self._world, self._database = world, world.database_for(self)
        self._unanswered: list[Submission] | None = None
        self.actions = [
            Action("submit", self._submit),
            Action("cancel", self._cancel),
            Action("replay", self._replay),
        ]

    async def _submit(self) -> float:
        dice, world = self._world.dice, self._world
        if world.journal.submitted_count >= world.job_limit:
            return NEVER_S
        batch = self._unanswered or [self._job(dice) for _ in range(dice.randint(1, 4))]
        # Without a key a lost reply means nobody knows; with one, sending it again is safe.
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
        return dice.uniform(0.0, 4.0)

    def _job(self, dice: Random) -> Submission:
        number = self._world.journal.next_number()
        task = EFFECT if dice.random() < 0.4 else PLAIN
        return submission(
            task,
            {"n": number % 5 if dice.random() < 0.2 else number},
            delay=dice.choice([None, None, dice.uniform(0, 20)]),
            key=f"key-{number}" if dice.random() < 0.4 else None,
            unique=Unique.of("payload") if dice.random() < 0.1 else None,
            delivery="at_most_once" if dice.random() < 0.1 else None,
            timeout=dice.choice([0, 0, 6, 30]),
            deadline=dice.choice([None, None, None, 60]),
            start_within=dice.choice([None, None, None, 20]),
            lease=12 if dice.random() < 0.2 and not self._world.weather.clock_is_set else None,
            max_lost=1000 if dice.random() < 0.9 else 2,
            retry=dice.choice([Retry.immediate(max_attempts=4), Retry.exponential(base=1, max=8), Retry.after(1, 2)]),
        )

    async def _cancel(self) -> float:
        dice, world = self._world.dice, self._world
        target = world.journal.any_job(dice)
        if target is None or dice.random() < 0.7:
            return dice.uniform(1.0, 5.0)
        try:
            async with self._database.transaction() as connection:
                done = await jobs.cancel(connection, target, now=world.clock.database_now())
            world.journal.cancelled(target, done.asked_count)
        except NotAllowedIn:
            pass
        return dice.uniform(2.0, 10.0)

    async def _replay(self) -> float:
        dice, world = self._world.dice, self._world
        async with self._database.transaction() as connection:
            letters = await dead_letters.find(connection, dead_letters.Filter(), limit=5)
            chosen: list[UUID] = [letter.id for letter in letters if dice.random() < 0.5]
            if chosen and world.journal.replayed_count < 5:
                risen = await dead_letters.replay(connection, chosen, now=world.clock.database_now())
                world.journal.replayed(risen)
        return dice.uniform(5.0, 20.0)
