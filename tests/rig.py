"""Shared by the tests of services: real services on real PostgreSQL, one pass at a time. The test controls time, handlers and
the connection to the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from sexton.clock import ManualClock
from sexton.domain.batch import Batch
from sexton.domain.job import submission
from sexton.domain.partition import ALL, Scan
from sexton.domain.targets import Target
from sexton.errors import DatabaseUnavailable
from sexton.handlers.context import Call, Context, Stopped, ask_to_stop
from sexton.handlers.handle import Handler
from sexton.operations import cancel as cancelling
from sexton.operations.cancel import cancel as cancel_job
from sexton.registry import Definition, Registry
from sexton.scheduler.janitor import Janitor
from sexton.scheduler.sweeper import Sweeper
from sexton.settings import Settings
from sexton.store.database import Connection, Database
from sexton.store.sql import statements
from sexton.store.work import dead_letters, jobs, runs
from sexton.telemetry.events import Event
from sexton.worker.execution import Execution
from sexton.worker.heartbeat import Heartbeat, LastResort
from sexton.worker.worker import Worker
from tests.callers import TESTER
from tests.simulation.timers import ManualTimers

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday
LONG_S = 10.0  # an operation that takes longer than this has failed
LEASE_S = 6.0
Kind = TypeVar("Kind")
Hook = Callable[[], Awaitable[None]]

_NAMES = {
    text: name
    for noun in ("runs", "callbacks", "jobs", "retention", "dead_letters", "schedules", "zones", "subscriptions")
    for name, text in statements(f"sexton.store.work.{noun}").items()
} | {text: name for name, text in statements("sexton.store.fleet.workers").items()}


class StoppableTimers(ManualTimers):
    def stop(self) -> None:
        """From now on no timer fires, as on an event loop that hangs."""
        self._heap.clear()


class Between:
    """Sits between a service and PostgreSQL: counts statements by name, and calls a hook of the test before or after one."""

    def __init__(self, real: Database) -> None:
        self._real = real
        self.statements: list[str] = []
        self._before: dict[str, Hook] = {}
        self._after: dict[str, Hook] = {}
        self.away = False

    @property
    def url(self) -> str:
        return self._real.url  # type: ignore[attr-defined,no-any-return]  # of a real one

    def before(self, name: str, hook: Hook) -> None:
        """Calls the hook once, before the next statement of that name."""
        self._before[name] = hook

    def after(self, name: str, hook: Hook) -> None:
        """Calls the hook once, after the next statement of that name and before the service gets its reply."""
        self._after[name] = hook

    def refuse(self, name: str) -> None:
        self.before(name, _gone)

    def lose_reply(self, name: str) -> None:
        self.after(name, _gone)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        await self._check()
        async with self._real.connection() as connection:
            yield _Watched(connection, self)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        await self._check()
        async with self._real.transaction() as connection:
            yield _Watched(connection, self)

    async def _check(self) -> None:
        if self.away:
            await _gone()

    async def around(self, query: str, run: Callable[[], Awaitable[Any]]) -> Any:
        name = _NAMES.get(query, query)
        self.statements.append(name)
        if (hook := self._before.pop(name, None)) is not None:
            await hook()
        answer = await run()
        if (hook := self._after.pop(name, None)) is not None:
            await hook()
        return answer


class _Watched:
    def __init__(self, real: Connection, between: Between) -> None:
        self._real, self._between = real, between

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        rows: list[Any] = await self._between.around(query, lambda: self._real.fetch(query, *args))
        return rows

    async def execute(self, query: str) -> Any:
        return await self._between.around(query, lambda: self._real.execute(query))


async def _gone() -> None:
    raise DatabaseUnavailable("gone")


class Handle:
    """A running handler, which ends when the test says so. If asked to stop, it does so only if it listens."""

    def __init__(self, call: Call, context: Context, *, listens: bool) -> None:
        self.call, self.context, self.listens = call, context, listens
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.freed: asyncio.Future[Any] = self.done
        self.asked = self.forced = False

    def returns(self, result: object = None) -> None:
        self.done.set_result(result)

    def raises(self, error: BaseException) -> None:
        self.done.set_exception(error)

    def ask_to_stop(self) -> None:
        self.asked = True
        ask_to_stop(self.context)
        if self.listens and not self.done.done():
            self.done.set_exception(Stopped("asked to stop"))

    def force_stop(self) -> bool:
        self.forced = True
        if not self.done.done():
            self.done.set_exception(Stopped("forced"))
        return True


class Stage:
    """The `Handler` of every task of a worker that the test controls; `handles` are all that it started, in order."""

    def __init__(self, *, listens: bool = True) -> None:
        self.listens = listens
        self.handles: list[Handle] = []

    def start(self, call: Call, context: Context) -> Handle:
        handle = Handle(call, context, listens=self.listens)
        self.handles.append(handle)
        return handle

    @property
    def running(self) -> list[Handle]:
        return [handle for handle in self.handles if not handle.done.done()]


class HandWorker:
    """A whole worker whose parts the test calls one by one."""

    def __init__(self, rig: Rig, worker: Worker, heartbeat: Heartbeat, stage: Stage) -> None:
        self.rig, self.worker, self.heartbeat, self.stage = rig, worker, heartbeat, stage
        self.intake = worker.intakes[0]

    async def beat(self) -> float:
        self.worker.pulse.felt_at = self.rig.clock.monotonic()
        return await self.heartbeat.run_once()

    async def take(self) -> float:
        self.intake.wake.clear()
        return await self.intake.run_once()

    async def report(self) -> None:
        """All handles that have ended, once the worker knows it."""
        await settle()
        while self.worker.reporter.pending_count:
            await self.worker.reporter.run_once()

    async def ends(self) -> None:
        """Waits until a handler that is a real function ends by itself, and reports it."""
        assert await self.worker.reporter.wake.rest(LONG_S), "no handler ended"
        await self.report()

    @property
    def held(self) -> list[Execution]:
        return self.worker.held_runs.all()


class Rig:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock(NOW)
        self.timers = StoppableTimers(self.clock)
        self.rng = Random(1)
        self.events: list[Event] = []

    # What a test does

    def move(self, span_s: float) -> None:
        self.clock.move(timedelta(seconds=span_s))
        self.timers.fire()

    async def submit(self, task: str | Target = "a", payload: Any = None, **options: Any) -> UUID:
        (job_id,) = await self.submit_many(1, task, payload, **options)
        return job_id

    async def submit_many(self, count: int, task: str | Target = "a", payload: Any = None, **options: Any) -> list[UUID]:
        document = submission(task, {} if payload is None else payload, **options)
        async with self.database.connection() as connection:
            answers = await jobs.submit(connection, [document] * count, now=self.clock.database_now())
        return [answer.id for answer in answers]

    async def cancel(self, job_id: UUID) -> cancelling.Cancellation:
        async with self.database.transaction() as connection:
            return await cancel_job(connection, TESTER, job_id, now=self.clock.database_now())

    async def execute(self, query: str, *arguments: Any) -> list[Any]:
        async with self.database.connection() as connection:
            rows: list[Any] = await connection.fetch(query, *arguments)
            return rows

    # What a test sees

    def heard(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    async def status(self, job_id: UUID) -> str:
        async with self.database.connection() as connection:
            return (await jobs.show(connection, job_id)).status

    async def executions(self, job_id: UUID) -> list[jobs.Execution]:
        async with self.database.connection() as connection:
            return await jobs.executions(connection, job_id)

    async def statuses(self, job_id: UUID) -> list[str]:
        return [execution.status for execution in await self.executions(job_id)]

    async def last(self, job_id: UUID) -> jobs.Execution:
        return (await self.executions(job_id))[-1]

    async def run(self, job_id: UUID) -> dict[str, Any] | None:
        rows = await self.execute("SELECT * FROM sexton.runs WHERE job_id = $1", job_id)
        return dict(rows[0]) if rows else None

    async def state(self, job_id: UUID) -> str | None:
        run = await self.run(job_id)
        return None if run is None else run["state"]

    async def states(self) -> list[str]:
        return [row["state"] for row in await self.execute("SELECT state FROM sexton.runs ORDER BY state")]

    async def letters(self) -> list[dead_letters.DeadLetter]:
        async with self.database.connection() as connection:
            return await dead_letters.find(connection, dead_letters.Filter())

    async def live_output(self, job_id: UUID) -> jobs.LiveOutput | None:
        async with self.database.connection() as connection:
            return await jobs.live_output(connection, job_id)

    # Services

    def sweeper(self, database: Database | None = None, **options: Any) -> Sweeper:
        chosen = {"lease_s": LEASE_S, "sweep_s": 1.0, **options}
        return Sweeper(database or self.database, clock=self.clock, emit=self.heard, rng=self.rng, **chosen)

    def janitor(self, database: Database | None = None) -> Janitor:
        return Janitor(database or self.database, history_days=90, dead_letter_days=30, clock=self.clock, emit=self.heard)

    async def worker(
        self,
        *functions: Callable[..., Any],
        database: Database | None = None,
        tasks: Sequence[str] = ("a",),
        listens: bool = True,
        poll_s: float = 2.0,
        transactions: Database | None = None,
        heartbeat_polls: bool = False,
        last_resort: LastResort | None = None,
        batches: Mapping[str, Batch] | None = None,
        **settings: Any,
    ) -> HandWorker:
        """Registered, with one heartbeat sent. Its handlers are the functions, if there are any, else the test's own. Those
        named in `batches` are batch tasks."""
        registry, stage = Registry(), Stage(listens=listens)
        for task in tasks:
            registry.add(Definition(task, lambda _ctx: None, __name__, task))
        for function in functions:
            shape = (batches or {}).get(function.__name__)
            registry.add(Definition(function.__name__, function, __name__, function.__name__, batch=shape))
        way = database or self.database
        handlers: dict[str, Handler] | None = None if functions else dict.fromkeys(tasks, stage)
        worker = Worker(
            way,
            registry,
            Settings(**{"worker_concurrency": 4, "worker_grace_s": 2.0, "lease_s": LEASE_S, **settings}),
            timers=self.timers,
            clock=self.clock,
            emit=self.heard,
            rng=self.rng,
            poll_s=poll_s,
            handlers=handlers,
            transactions=transactions,
            heartbeat_polls=heartbeat_polls,
        )
        hand = HandWorker(self, worker, worker.make_heartbeat(way, lambda call: call(), last_resort), stage)
        await hand.beat()
        return hand

    async def promote(self) -> None:
        async with self.database.connection() as connection:
            await runs.promote(connection, Scan(ALL, 1000), now=self.clock.database_now())


async def settle() -> None:
    """Lets callbacks of completed futures run."""
    for _ in range(3):
        await asyncio.sleep(0)
