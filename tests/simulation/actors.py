"""The product's real services, stepped one by one: a scheduler node, and a worker whose handlers end when the simulation says
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
from sexton.store.fleet import workers
from sexton.store.sql import statements
from sexton.worker.execution import Phase
from sexton.worker.quarantine.child import Confined
from sexton.worker.worker import Worker

from . import zone_update
from .clocks import NodeClock
from .faults import Crash
from .locks import SimulatedLocks
from .timers import ManualTimers

if TYPE_CHECKING:
    from sexton.domain.schedule.zone import Release
    from sexton.store.database import Database

    from .quarantine import QuarantineActor
    from .world import World

PLAIN, EFFECT, TICK = "plain", "effect", "tick"  # TICK: the task of recurring jobs
NEWER = "newer"  # a task that workers of the previous release do not know
POISON = "poison"  # ends the worker that executes it
TASKS = (PLAIN, EFFECT, TICK, NEWER, POISON)
QUEUES = ("default", "side")
# Enough slots for two workers to take over the runs of a third.
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
RECONNECT_S = 0.3  # after this, the heartbeat of a worker whose session has ended is the next action
EAGER = 4  # weight compared with the other actions; a higher one would leave too few steps for the work itself
# A result that PostgreSQL rejects: it fails its own run and no other of the batch (rule "bisect bad batches").
UNKEPT = {"text": "a\x00b"}
BEAT = statements("sexton.store.fleet.workers")["beat"]

Step = Callable[[], Awaitable[float]]


@dataclass
class Action:
    """One action of an actor. It is not chosen before `due_s`, unless something wakes it."""

    name: str
    run: Step
    due_s: float = 0.0
    woken: Wake | None = None
    weight: Callable[[], int] = lambda: 1  # number of waiting actions of its kind
    halfway: tuple[asyncio.Task[float], asyncio.Future[None]] | None = None  # the step that is paused between two statements

    def is_due(self, now_s: float) -> bool:
        return self.due_s <= now_s or (self.woken is not None and self.woken.is_set)


@dataclass(eq=False)
class Actor:
    name: str
    actions: list[Action] = field(default_factory=list)
    partitioned_until_s: float = 0.0  # the process runs, but cannot reach the database
    pauses: list[float] = field(default_factory=list)  # the ends of all its pauses
    partitions: list[float] = field(default_factory=list)
    alive: bool = True
    release: Release = zone_update.OLD  # release of its time zone data
    clock: NodeClock | None = None  # clock of the process; a client's clock does not matter
    _paused_until_s: float | None = None  # its process is paused
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
        """True if its pause has just ended."""
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
        """0: it is not paused."""
        return now_s - self._cut_off_at_s if now_s < self.partitioned_until_s else 0.0

    def was_cut_off_since(self, since_s: float) -> bool:
        return any(until_s >= since_s for until_s in self.partitions)

    def stood_still_since(self, since_s: float) -> bool:
        return any(until_s >= since_s for until_s in self.pauses)

    def feel_time(self) -> None:
        """Time has passed for this process."""

    def answered(self, query: str) -> None:
        """The reply to one of its statements has arrived."""

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
            rng=world.rng,
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
    """A running handler that ends at `ends_s`. If asked to stop, it ends earlier only if it is of a kind that listens."""

    def __init__(self, call: Call, context: Context, lease: Lease, *, ends_s: float, listens: bool) -> None:
        self.call, self.context, self.lease, self.ends_s, self.listens = call, context, lease, ends_s, listens
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.freed = self.done
        # read the exception, also if no service asks for it any more
        self.done.add_done_callback(lambda done: done.exception())

    def ask_to_stop(self) -> None:
        if self.listens and not self.done.done():
            self.done.set_exception(Stopped("asked to stop"))

    def force_stop(self) -> bool:
        if not self.done.done():
            self.done.set_exception(Stopped("killed"))
        return True


class WorkerActor(Actor):
    def __init__(self, world: World, name: str, tasks: tuple[str, ...] = TASKS, *, parent: WorkerActor | None = None) -> None:
        """With a `parent`, it is in quarantine."""
        super().__init__(name)
        self._world, self.tasks = world, tasks
        self.child: QuarantineActor | None = None
        self.ended_children: list[UUID] = []  # children that it saw end, and has not reported yet
        self.clock = self._node_clock = world.clock_of_a_node()
        self.running: list[SimulatedHandle] = []
        self.beaten_s = world.clock.monotonic()
        self.hindered_s = -1.0  # when a fault last hit a heartbeat
        self._ended_sessions: list[int] = []  # that it has not been told of yet
        self.timers = ManualTimers(world.clock)
        registry = Registry()
        for task in tasks:
            registry.add(Definition(task, lambda _ctx: None, __name__, task))
        self._database = database = world.database_for(self)
        self.worker: Worker = Worker(
            database,
            registry,
            SETTINGS,
            timers=self.timers,
            clock=self._node_clock,
            emit=world.heard,
            rng=world.rng,
            poll_s=2.0,
            handlers=dict.fromkeys(TASKS, self),
            new_id=self._new_id,
            heartbeat_polls=parent is None,
            confined=None if parent is None else Confined(self._new_id(), parent.worker.worker_id),
        )
        self._heartbeat = self.worker.make_heartbeat(database, lambda call: call())
        self.actions = [
            Action("heartbeat", self._beat),
            Action("intake", self.worker.intakes[0].run_once, woken=self.worker.intakes[0].wake, weight=lambda: EAGER),
            *(Action("second hand", second.run_once, woken=second.wake) for second in self.worker.intakes[0].hands[1:]),
            Action("reporter", self.worker.reporter.run_once, woken=self.worker.reporter.wake, weight=lambda: EAGER),
            Action("progress_writer", self._tell, due_s=NEVER_S),
            Action("handler", self._end_one, due_s=NEVER_S, weight=lambda: EAGER * max(1, len(self._ripe()))),
        ]
        self._teller, self._handlers = self.actions[-2:]

    def _new_id(self) -> UUID:
        new_id = self._world.new_id()
        self._world.tasks_known[new_id] = self.tasks
        return new_id

    def start(self, call: Call, context: Context) -> SimulatedHandle:
        """The worker's `Handler`: this actor plays all handlers."""
        world = self._world
        claimed = next(e.claimed for e in self.worker.held_runs.all() if e.claimed.lease.run_id == call.run_id)
        lease = claimed.lease
        span_s = world.rng.uniform(*world.fault_profile.handler_s)
        # It is quick if others wait for its slot; otherwise a simulation would take too long.
        ends_s = world.clock.monotonic() + (span_s / 3 if claimed.is_limited else span_s)
        handle = SimulatedHandle(call, context, lease, ends_s=ends_s, listens=world.rng.random() < 0.7)
        self.running.append(handle)
        self._handlers.due_s = min(self._handlers.due_s, ends_s)
        world.journal.started(self, handle)
        return handle

    def wake(self, *names: str) -> None:
        super().wake(*names)
        if "intake" in names:
            self.worker.hear("")

    def session_ended(self, number: int) -> None:
        """The worker is told at once, unless its process is paused."""
        self._ended_sessions.append(number)
        if not self.is_paused:
            self._hear_of_sessions()

    def _hear_of_sessions(self) -> None:
        while self._ended_sessions:
            if self._heartbeat.session_ended(self._ended_sessions.pop()):
                self.actions[0].due_s = min(self.actions[0].due_s, self._world.clock.monotonic() - 1.0 + RECONNECT_S)

    def feel_time(self) -> None:
        if self.alive:
            self._hear_of_sessions()
            self.timers.fire()
            self._heartbeat.watch()  # several times a second: the first call asks, a later one forces
            self._heartbeat.watch()

    def answered(self, query: str) -> None:
        if query == BEAT:
            self.beaten_s = self._world.clock.monotonic()

    def drain(self) -> None:
        """SIGTERM without a grace: claim no more, stop the running handlers, hand the runs back, end."""
        self.worker.draining = True
        self.worker.intakes[0].close("draining")
        for execution in self.worker.held_runs.all():
            execution.release("draining")
        if self.child is not None:
            self.child.drain()

    async def _beat(self) -> float:
        if self.worker.draining and not len(self.worker.held_runs):
            self._world.replace(self)
            return 0.0
        self.worker.pulse.felt_at = self._node_clock.monotonic()
        rest_s = await self._heartbeat.run_once()
        await self.see_to_child()
        return rest_s

    async def see_to_child(self) -> None:
        """Reports that a child has ended, and starts the next if suspects wait."""
        world = self._world
        while self.ended_children:
            async with self._database.connection() as connection:
                given = {"reason": "its process ended", "now": world.clock.database_now()}
                if await workers.declare_ended(connection, self.ended_children[0], **given):  # type: ignore[arg-type]
                    world.journal.seen["child declared ended"] += 1
            self.ended_children.pop(0)
        if world.suspects_wait and self.child is None and not self.worker.draining:
            world.start_child(self)

    async def _tell(self) -> float:
        await self.worker.progress_writer.run_once()
        return NEVER_S

    async def _end_one(self) -> float:
        """Ends one of the handlers whose time is over, with a random outcome."""
        rng, now = self._world.rng, self._world.clock.monotonic()
        ripe = self._ripe()
        if ripe:
            handle = rng.choice(ripe)
            if handle.call.task == POISON:
                self._world.journal.seen["poisoned"] += 1
                raise Crash("poison")
            if handle.call.task in (PLAIN, NEWER) and rng.random() < 0.2:
                handle.context.log("half way")
                handle.ends_s += rng.uniform(0.1, 3.0)
                self._teller.due_s = now + rng.uniform(0.0, 1.0)
            else:
                await self._end(handle, rng)
        self.running = [handle for handle in self.running if not handle.done.done()]
        return min((handle.ends_s for handle in self.running), default=NEVER_S) - now

    def _ripe(self) -> list[SimulatedHandle]:
        now = self._world.clock.monotonic()
        return [handle for handle in self.running if handle.ends_s <= now and not handle.done.done()]

    async def _end(self, handle: SimulatedHandle, rng: Random) -> None:
        outcome = self._outcome(handle, rng)
        model = self._world.model
        if outcome is UNKEPT:
            model.raised(handle.call.job_id, for_good=True)
        elif not isinstance(outcome, BaseException):
            model.returned(handle.call.job_id)  # also if the reply to its commit is lost
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

    def _outcome(self, handle: SimulatedHandle, rng: Random) -> Any:
        # A snooze leads to a second start, so a job that may start only once does not snooze.
        snooze = 0 if handle.lease.at_most_once else 8
        outcomes = [{"ok": True}, ValueError("no luck"), PermanentError("hopeless"), Snooze(rng.uniform(0, 10)), UNKEPT]
        unkept = 0 if handle.call.task == EFFECT else 3
        outcome = rng.choices(outcomes, weights=[70, 18, 4, snooze, unkept])[0]
        if outcome is UNKEPT:
            self._world.journal.seen["result that cannot be kept"] += 1
        return outcome

    @property
    def executing_count(self) -> int:
        return sum(execution.phase is Phase.RUNNING for execution in self.worker.held_runs.all())
