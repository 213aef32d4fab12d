"""The real services of the product, each stepped by hand: a scheduler node, and a worker whose handlers end when the world says
so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sexton.domain.run import Lease
from sexton.errors import Contention, DatabaseUnavailable, LeaseLost, PermanentError, Snooze
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
from sexton.store.sql import statements
from sexton.worker.execution import Phase
from sexton.worker.worker import Worker

from . import zone_update
from .clocks import NodeClock
from .locks import SimulatedLocks
from .timers import ManualTimers

if TYPE_CHECKING:
    from sexton.domain.schedule.zone import Release
    from sexton.store.database import Database

    from .world import World

PLAIN, EFFECT, TICK = "plain", "effect", "tick"  # the last of recurring jobs
NEWER = "newer"  # what a worker that has not been restarted yet does not know
TASKS = (PLAIN, EFFECT, TICK, NEWER)
QUEUES = ("default", "side")
# Room enough for two workers to take over what the third had.
SETTINGS = Settings(
    worker_concurrency=12,
    worker_queues=QUEUES,
    worker_grace_s=2.0,
    lease_s=6.0,
    beat_s=1.5,
    sweep_s=1.5,
    promote_limit=5,
)

NEVER_S = 1e9
EAGER = 4  # times as likely to be next as the rest, or more would be said than done
# A result that PostgreSQL refuses: it fails its own run and no other of the batch (rule "bisect bad batches").
UNKEPT = {"text": "a\x00b"}
BEAT = statements("sexton.store.fleet.workers")["beat"]

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
    release: Release = zone_update.OLD  # its time zone data
    clock: NodeClock | None = None  # of a process; clients have none that counts
    _paused_until_s: float | None = None  # its process stands still
    _cut_off_at_s: float = 0.0

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

    def cut_off(self, now_s: float, until_s: float) -> None:
        if self.partitioned_until_s <= now_s:
            self._cut_off_at_s = now_s
        self.partitioned_until_s = until_s
        self.partitions.append(until_s)

    def cut_off_for_s(self, now_s: float) -> float:
        """0: it is not."""
        return now_s - self._cut_off_at_s if now_s < self.partitioned_until_s else 0.0

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
        self.clock = clock = world.clock_of_a_node()
        self.node_id = world.new_id()
        database: Database = world.database_for(self)
        locks = SimulatedLocks(world.locks, self, world.session, world.draw_for(self)) if world.has_locks else None
        self.leadership = leadership = Leadership(database, self.node_id, name, locks, clock=clock, emit=world.heard)
        promoter = Promoter(database, lambda: leadership.partitions, limit=5, clock=clock, emit=world.heard)
        self.sweeper = Sweeper(
            database,
            lease_s=SETTINGS.lease_s,
            sweep_s=SETTINGS.sweep_s,
            clock=clock,
            emit=world.heard,
            dice=world.dice,
            to_plan=lambda: self.wake("planner"),
        )
        janitor = Janitor(database, history_days=90, dead_letter_days=30, clock=clock, emit=world.heard)
        planner = Planner(database, lambda: leadership.partitions, limit=5, clock=clock, emit=world.heard, rest_s=WOKEN_REST_S)
        guardian = Guardian(database, clock=clock, emit=world.heard)
        self.actions = [
            Action("leadership", leadership.run_once),
            Action("planner", planner.run_once),
            Action("guardian", guardian.run_once),
            Action("promoter", promoter.run_once, weight=lambda: EAGER),
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
    def __init__(self, world: World, name: str, tasks: tuple[str, ...] = TASKS) -> None:
        super().__init__(name)
        self._world, self._tasks = world, tasks
        self.clock = self._node_clock = world.clock_of_a_node()
        self.running: list[SimulatedHandle] = []
        self.beaten_s = world.clock.monotonic()
        self.timers = ManualTimers(world.clock)
        registry = Registry()
        for task in tasks:
            registry.add(Definition(task, lambda _ctx: None, __name__, task))
        database = world.database_for(self)
        self.worker = Worker(
            database,
            registry,
            SETTINGS,
            timers=self.timers,
            clock=self._node_clock,
            emit=world.heard,
            dice=world.dice,
            poll_s=2.0,
            handlers=dict.fromkeys(TASKS, self),
            new_id=self._new_id,
            looks_by_beat=True,
        )
        self._heartbeat = self.worker.make_heartbeat(database, lambda call: call())
        _, second = self.worker.intakes[0].hands
        self.actions = [
            Action("heartbeat", self._beat),
            Action("intake", self.worker.intakes[0].run_once, woken=self.worker.intakes[0].wake, weight=lambda: EAGER),
            Action("second hand", second.run_once, woken=second.wake),
            Action("reporter", self.worker.reporter.run_once, woken=self.worker.reporter.wake, weight=lambda: EAGER),
            Action("progress_writer", self._tell, due_s=NEVER_S),
            Action("handler", self._end_one, due_s=NEVER_S, weight=lambda: EAGER * max(1, len(self._ripe()))),
        ]
        self._teller, self._handlers = self.actions[-2:]

    def _new_id(self) -> UUID:
        new_id = self._world.new_id()
        self._world.tasks_known[new_id] = self._tasks
        return new_id

    def start(self, call: Call, context: Context) -> SimulatedHandle:
        """The worker's `Handler`: this actor plays all of them."""
        world = self._world
        claimed = next(e.claimed for e in self.worker.holdings.all() if e.claimed.lease.run_id == call.run_id)
        lease = claimed.lease
        span_s = world.dice.uniform(*world.fault_profile.handler_s)
        # Where others wait for its slot it is quick, or a life would take for ever.
        ends_s = world.clock.monotonic() + (span_s / 3 if claimed.is_limited else span_s)
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
        self.worker.pulse.felt_at = self._node_clock.monotonic()
        return await self._heartbeat.run_once()

    async def _tell(self) -> float:
        await self.worker.progress_writer.run_once()
        return NEVER_S

    async def _end_one(self) -> float:
        """One of the handlers whose time has come ends, somehow."""
        dice, now = self._world.dice, self._world.clock.monotonic()
        ripe = self._ripe()
        if ripe:
            handle = dice.choice(ripe)
            if handle.call.task in (PLAIN, NEWER) and dice.random() < 0.2:
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
        outcome = self._outcome(handle, dice)
        model = self._world.model
        if outcome is UNKEPT:
            model.raised(handle.call.job_id, for_good=True)
        elif not isinstance(outcome, BaseException):
            model.returned(handle.call.job_id)  # also if it is never heard that its transaction has committed
        try:
            if handle.call.task == EFFECT:
                async with handle.context.transaction() as connection:
                    await connection.fetch("INSERT INTO public.effects (job_id) VALUES ($1)", handle.call.job_id)
                    if isinstance(outcome, BaseException):
                        raise outcome
        except (DatabaseUnavailable, Contention, LeaseLost, ValueError, PermanentError, Snooze) as error:
            outcome = error
        if isinstance(outcome, LeaseLost):
            self._world.journal.seen["effect rolled back"] += 1
        elif isinstance(outcome, BaseException) and not isinstance(outcome, Snooze):
            model.raised(handle.call.job_id, for_good=isinstance(outcome, PermanentError))
        if handle.done.done():
            return
        if isinstance(outcome, BaseException):
            handle.done.set_exception(outcome)
        else:
            handle.done.set_result(outcome)

    def _outcome(self, handle: SimulatedHandle, dice: Random) -> Any:
        # A snooze asks for a second start, so a job that must start once at most does not do it.
        snooze = 0 if handle.lease.at_most_once else 8
        outcomes = [{"ok": True}, ValueError("no luck"), PermanentError("hopeless"), Snooze(dice.uniform(0, 10)), UNKEPT]
        unkept = 0 if handle.call.task == EFFECT else 3
        outcome = dice.choices(outcomes, weights=[70, 18, 4, snooze, unkept])[0]
        if outcome is UNKEPT:
            self._world.journal.seen["result that cannot be kept"] += 1
        return outcome

    @property
    def executing_count(self) -> int:
        return sum(execution.phase is Phase.RUNNING for execution in self.worker.holdings.all())
