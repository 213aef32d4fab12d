"""One worker: its parts, how they are connected, and the drain that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from sexton.clock import Clock
from sexton.dispatch.batches import BatchTransport
from sexton.dispatch.postgres import PostgresTransport
from sexton.dispatch.suspects import SuspectTransport
from sexton.dispatch.transport import Transport
from sexton.domain.batch import Batch, Member
from sexton.domain.run import Claimed, Report
from sexton.handlers.handle import Handler
from sexton.handlers.live_output import LiveOutput
from sexton.handlers.python.batch.functions import BatchFunction
from sexton.handlers.python.function import handler_for
from sexton.handlers.python.process_pool import ProcessPool
from sexton.handlers.python.threads import ThreadSlots
from sexton.ids import Rng, process_id, process_name
from sexton.registry import Definition, Registry
from sexton.service import insist
from sexton.settings import Settings
from sexton.store.database import Connection, Database
from sexton.store.fleet import workers
from sexton.telemetry.events import DeclaredLost, Drained, Emit, WorkerJoined
from sexton.worker.quarantine.child import POLL_S, Confined
from sexton.worker.stall.loop_pulse import Pulse

from .batch.execution import BatchExecution
from .batch.group import Group
from .batch.intake import BatchIntake
from .deadlines import Deadlines, Timers
from .empty_queues import EmptyQueueFilter
from .execution import Bench, Execution, Phase
from .heartbeat import Heartbeat, LastResort, idle_beat_s
from .held_runs import HeldRuns
from .intake import Intake, Slots
from .missing_settings import MissingSettings
from .overdue import OverdueWork
from .progress_writer import ProgressWriter
from .reporter import Reporter
from .transaction import Transaction

FLUSH_S = 10.0
TRUST_S = 0.5  # a heartbeat may be this late before the intakes query for themselves again


class Worker:
    """Gets its `Database` from the caller, so that a simulation can replace it and call `run_once` of each part."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        settings: Settings,
        *,
        timers: Timers,
        clock: Clock,
        emit: Emit,
        rng: Rng,
        poll_s: float,
        handlers: Mapping[str, Handler] | None = None,
        transactions: Database | None = None,
        new_id: Callable[[], UUID] = process_id,
        heartbeat_polls: bool = False,
        needs_heartbeat: bool = False,
        targets: Mapping[str, Handler] | None = None,
        confined: Confined | None = None,
        batches_wait: bool = True,
    ) -> None:
        """`handlers` replace the registry's functions in tests. `transactions` is a pool for the handlers' own transactions, so
        that a slow one cannot delay claims and reports. `heartbeat_polls`: the worker receives hints, so the heartbeat may look
        for work for an idle intake. `needs_heartbeat`: the worker claims nothing before its first heartbeat, because others
        would declare it dead. `targets` are the tasks other than Python functions. `confined`: it is in quarantine.
        Without `batches_wait` a batch starts with what its claim has brought."""
        self._confined = confined
        self.on_suspects: Callable[[], None] = lambda: None  # called when a heartbeat has seen that they wait
        self._targets = targets or {}
        self._in_process = {definition.name for definition in registry if not definition.process}
        self._empty_queues: list[EmptyQueueFilter] = []
        self._heartbeat_polls, self._needs_heartbeat = heartbeat_polls, needs_heartbeat
        self._new_id = new_id
        self.worker_id = new_id() if confined is None else confined.worker_id
        self.enlisted = False
        self.draining = False
        self.exhausted = asyncio.Event()  # too many zombies: only a new process helps
        self.cut_off: Callable[[], object] = lambda: None  # called when no heartbeat succeeded for a whole lease
        self._database, self._registry, self._settings = database, registry, settings
        self._clock, self._emit, self._rng = clock, emit, rng
        self._heartbeat: Heartbeat | None = None
        self._zombies: set[Execution | Group] = set()
        self._an_end = asyncio.Event()
        self.ran: set[str] = set()  # tasks whose handlers have ended; the process guard empties it
        self.held_runs = HeldRuns()
        self.pulse = Pulse(clock)
        self.reporter = Reporter(database, self.held_runs, clock=clock, emit=emit, rng=rng)
        self.progress_writer = ProgressWriter(database, self.held_runs, lambda: self.worker_id, clock=clock)
        self._batches = {one.name: one.batch for one in registry if one.batch is not None}
        self.processes = ProcessPool(settings.worker_processes + self._call_count(is_process=True))
        self.missing = MissingSettings(clock=clock, emit=emit)
        thread_count = settings.worker_concurrency + settings.worker_zombie_limit + self._call_count(is_process=False)
        self.threads = ThreadSlots(thread_count)
        self._exact_timers, self._batches_wait = timers, batches_wait
        self._bench = self._make_bench(handlers, timers, transactions)
        self.process_tasks = frozenset(self._tasks_of_kind(True))
        self.batch_tasks = frozenset(self._batches)
        self.intakes = self._make_intakes(poll_s)
        self._intake_of = {name: intake for intake in self.intakes for name in intake.tasks}

    def _make_bench(self, handlers: Mapping[str, Handler] | None, timers: Timers, transactions: Database | None) -> Bench:
        pool, clock, rng = transactions or self._database, self._clock, self._rng
        return Bench(
            handlers=self._handlers() if handlers is None else handlers,
            clock=clock,
            timers=Deadlines(timers, clock),
            rng=rng,
            grace_s=self._settings.worker_grace_s,
            missing=self.missing,
            new_output=lambda: LiveOutput(clock.monotonic),
            transaction=lambda execution, connection: Transaction(pool, execution, connection, clock=clock, rng=rng),
            ended=self._ended,
            left=self._left,
            dropped=self._dropped,
            freed=self._freed,
            undead=self._undead,
        )

    def _make_intakes(self, poll_s: float) -> list[Intake]:
        """Runs in processes have separate slots, so each kind has its own intake. So has each batch task."""
        settings = self._settings
        kinds = (("intake", False, settings.worker_concurrency), ("process intake", True, settings.worker_processes))
        ordinary = [
            self._make_intake(name, tasks, Slots(limit), is_process=is_process, poll_s=poll_s)
            for name, is_process, limit in kinds
            if (tasks := self._tasks_of_kind(is_process))
        ]
        return [*ordinary, *(self._make_batch_intake(task, shape, poll_s) for task, shape in self._batches.items())]

    def _make_intake(self, name: str, tasks: list[str], slots: Slots, *, is_process: bool, poll_s: float) -> Intake:
        """With two transports for the same tasks, where they run in this process. The first looks for work when idle, or has it
        looked for by the heartbeat."""
        first, empty_queues = self._make_first_transport()
        others: list[Transport] = []
        if isinstance(first, PostgresTransport) and not is_process:
            others = [self._make_transport(beside=first)]
        return Intake(
            name,
            [empty_queues or first, *others],
            tasks,
            slots,
            begin=self._begin,
            takes_ahead=not is_process and self._confined is None,
            **self._of_any_intake(empty_queues, poll_s),
        )

    def _make_batch_intake(self, task: str, shape: Batch, poll_s: float) -> BatchIntake:
        function = self._bench.handlers[task]
        assert isinstance(function, BatchFunction), "tests replace only the handlers of other tasks"  # noqa: S101
        first, empty_queues = self._make_first_transport()
        return BatchIntake(
            f"intake of {task}",
            [BatchTransport(empty_queues or first, self._database)],
            task,
            shape,
            function,
            begin=self._begin_member,
            wait_s=shape.wait_s if self._batches_wait else 0.0,
            timers=self._bench.timers,
            exact_timers=self._exact_timers,
            grace_s=self._settings.worker_grace_s,
            undead=self._undead,
            freed=self._group_freed,
            **self._of_any_intake(empty_queues, poll_s),
        )

    def _of_any_intake(self, empty_queues: EmptyQueueFilter | None, poll_s: float) -> dict[str, Any]:
        return {
            "held_runs": self.held_runs,
            "overdue": None if self._confined else OverdueWork(self._database, empty_queues, clock=self._clock),
            "worker_id": lambda: self.worker_id,
            "may_claim": self._may_claim,
            "unreported_count": lambda: self.reporter.pending_count,
            "poll_s": poll_s if self._confined is None else POLL_S,
            "clock": self._clock,
            "emit": self._emit,
            "rng": self._rng,
        }

    def _make_first_transport(self) -> tuple[Transport, EmptyQueueFilter | None]:
        if self._confined is not None:
            grace_s, queues = self._settings.worker_grace_s + 5, self._settings.worker_queues
            return SuspectTransport(self._database, queues, grace_s=grace_s, clock=self._clock), None
        first = self._make_transport()
        return first, self._filter_empty_queues(first) if self._heartbeat_polls else None

    def _call_count(self, *, is_process: bool) -> int:
        """Calls of batch tasks at once: they take no thread and no process from others."""
        return sum(one.batch.calls for one in self._registry if one.batch is not None and one.process is is_process)

    def _may_claim(self) -> bool:
        return not (self._needs_heartbeat if self._heartbeat is None else self._heartbeat.is_overdue)

    def _tasks_of_kind(self, is_process: bool) -> list[str]:
        named = [one.name for one in self._registry if one.process is is_process and one.batch is None]
        return named if is_process else [*named, *self._targets]

    def _make_transport(self, beside: PostgresTransport | None = None) -> PostgresTransport:
        grace_s = self._settings.worker_grace_s + 5
        return PostgresTransport(self._database, self._settings.queue_order, grace_s=grace_s, clock=self._clock, beside=beside)

    def _filter_empty_queues(self, transport: Transport) -> EmptyQueueFilter:
        trust_s = idle_beat_s(self._settings.beat_s, self._settings.lease_s) + TRUST_S
        self._empty_queues.append(EmptyQueueFilter(transport, trust_s=trust_s, clock=self._clock))
        return self._empty_queues[-1]

    def _handlers(self) -> dict[str, Handler]:
        functions = {definition.name: self._handler(definition) for definition in self._registry}
        return {**functions, **self._targets}

    def _handler(self, definition: Definition) -> Handler:
        where = (definition.module, definition.qualname)
        threads, processes = self.threads, self.processes
        if definition.batch is None:
            return handler_for(definition.fn, process=definition.process, threads=threads, processes=processes, where=where)
        return BatchFunction(
            definition.name, definition.fn, process=definition.process, threads=threads, processes=processes, where=where
        )

    def make_heartbeat(
        self, database: Database, post: Callable[[Callable[[], None]], object], last_resort: LastResort | None = None
    ) -> Heartbeat:
        """With its own database, because it runs in its own thread; `post` passes its calls to the event loop."""
        self._heartbeat = Heartbeat(
            database,
            self,
            self.held_runs,
            self.pulse,
            post=post,
            beat_s=self._settings.beat_s,
            lease_s=self._settings.lease_s,
            loop_stall_s=self._settings.loop_stall_s,
            queues=self._settings.worker_queues,
            clock=self._clock,
            emit=self._emit,
            rng=self._rng,
            last_resort=last_resort,
        )
        return self._heartbeat

    async def enlist(self, connection: Connection) -> None:
        now = self._clock.database_now()
        await workers.register_tasks(connection, {d.name: d.options for d in self._registry}, now=now)
        await workers.enlist(
            connection,
            self.worker_id,
            name=process_name(),
            queues=self._settings.worker_queues,
            tasks=[*self._registry.names, *sorted(self._targets)],
            concurrency=sum(intake.slots.limit for intake in self.intakes),
            quarantine=self._confined is not None,
            parent_id=None if self._confined is None else self._confined.parent_id,
            lease_s=self._settings.lease_s,
            process_tasks=sorted(self.process_tasks),
            process_slots=self._settings.worker_processes if self.process_tasks else 0,
            batch_tasks=sorted(self.batch_tasks),
            batch_slots=sum(intake.slots.limit for intake in self.intakes if isinstance(intake, BatchIntake)),
            now=now,
        )
        self.enlisted = True
        self._emit(WorkerJoined(self.worker_id, process_name()))

    def declared_lost(self, worker_id: UUID) -> None:
        """A sweeper declared this worker dead, and other workers may have its runs. It continues under a new id, which the next
        heartbeat enlists. In quarantine it ends: its parent starts another one."""
        if worker_id != self.worker_id:
            return
        held = self.held_runs.all()
        self._emit(DeclaredLost(self.worker_id, len(held)))
        self.cut_off()
        if self._confined is None:
            self.worker_id, self.enlisted = self._new_id(), False
        else:
            self.exhausted.set()
        for execution in held:
            execution.lose()

    def looked(self, *, is_ready: bool, is_overdue: bool, sent_at: float) -> None:
        """What a heartbeat has seen. If it looks for work for the intakes, it also wakes them."""
        for empty_queues in self._empty_queues:
            empty_queues.look(is_ready=is_ready, is_overdue=is_overdue, sent_at=sent_at)
        if self._heartbeat_polls and (is_ready or is_overdue):
            for intake in self.intakes:
                intake.wake()

    def hear(self, queue: str) -> None:
        if not queue or queue in self._settings.worker_queues:
            for empty_queues in self._empty_queues:
                empty_queues.hear()
            for intake in self.intakes:
                intake.hear()

    async def drain(self, patience_s: float) -> None:
        """Stops claiming, lets running handlers finish, returns the rest. No run is lost."""
        self.draining = True
        for intake in self.intakes:
            intake.close("the worker is draining")
        await self._until_idle(patience_s)
        unfinished = self._executing()
        for execution in unfinished:
            execution.release("the worker is draining")
        await self._until_idle(self._settings.worker_grace_s / 4)
        for execution in self._executing():
            execution.force()
        self._emit(Drained(self.worker_id, len(unfinished)))

    async def flush(self) -> None:
        """Writes the last reports, after all other callers of the reporter have stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                while self.reporter.pending_count:
                    await insist("reporter", self.reporter.run_once, clock=self._clock, emit=self._emit, rng=self._rng)

    async def _until_idle(self, patience_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                for intake in self.intakes:
                    await intake.at_rest()
                while self._executing():
                    self._an_end.clear()
                    await self._an_end.wait()

    def running_in_process(self) -> list[Execution]:
        """Those whose handlers share this process."""
        return [
            execution
            for execution in self.held_runs.all()
            if execution.phase is Phase.RUNNING and execution.claimed.task in self._in_process
        ]

    def _executing(self) -> list[Execution]:
        return [execution for execution in self.held_runs.all() if execution.phase in (Phase.TAKEN, Phase.RUNNING)]

    def _begin(self, claimed: Claimed, taken_at: float) -> Execution:
        return Execution(claimed, taken_at, self._bench)

    def _begin_member(self, claimed: Claimed, taken_at: float) -> Execution:
        assert isinstance(claimed, Member), "of the transport of a batch task"  # noqa: S101
        return BatchExecution(claimed, taken_at, self._bench)

    def _ended(self, execution: Execution, report: Report) -> None:
        self.reporter.add(execution, report)
        self._an_end.set()

    def _left(self, execution: Execution, live: LiveOutput | None) -> None:
        self.reporter.hand_over(execution, live)
        self._an_end.set()

    def _dropped(self, execution: Execution) -> None:
        self.reporter.drop(execution)
        self._an_end.set()

    def _undead(self, zombie: Execution | Group) -> None:
        self._zombies.add(zombie)
        if len(self._zombies) >= self._settings.worker_zombie_limit:
            self.exhausted.set()

    def _freed(self, execution: Execution) -> None:
        self._zombies.discard(execution)
        if execution.started_at is not None:
            if execution.claimed.task in self._in_process:
                self.ran.add(execution.claimed.task)
            self._intake_of[execution.claimed.task].slot_freed()

    def _group_freed(self, group: Group) -> None:
        self._zombies.discard(group)
        if group.task in self._in_process:
            self.ran.add(group.task)
