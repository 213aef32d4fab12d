"""A lease expires while its worker is paused or hangs: another worker finishes the run, and the late result is rejected."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from sexton.clock import ManualClock, SystemClock
from sexton.domain.job import submission
from sexton.domain.outcome import Released
from sexton.domain.run import report
from sexton.handlers.python.function import AsyncFunction
from sexton.settings import Settings
from sexton.store.work import jobs, runs
from sexton.telemetry.events import Ended, Event, LeaseLost, Reconciled, unheard
from sexton.worker.worker import Worker
from tests.sizes import size

from . import checker
from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import asyncpg

    from sexton import App
    from sexton.handlers.context import Call, Context
    from sexton.store.database import Connection, Postgres

    Conn = asyncpg.Connection[asyncpg.Record]

BUSY_S = size("BUSY_S", 7)
HANG_S = SHORT["loop_stall_s"] + SHORT["lease_s"] + 3


async def test_the_late_result_of_a_paused_worker_is_rejected_and_counted(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    cluster = start_cluster(**SHORT)
    frozen = cluster.worker("frozen")
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    job = await app.submit("deaf", {"seconds": 0.5})
    await cluster.until(lambda: cluster.lines("start"), "the start")
    cluster.pause("frozen")
    cluster.worker("heir")
    await job.result(timeout="30s")

    cluster.resume("frozen")
    await cluster.until(lambda: frozen.log.count("lease lost") == 1, "the late result to be refused")
    assert [each.status for each in await app.executions(job.id)] == ["lost", "succeeded"]
    assert [each.token for each in await app.executions(job.id)] == [1, 2]
    await cluster.until(lambda: refused_count(connection, frozen.pid), "the refusal to be counted")
    assert len({line.pid for line in cluster.lines("end")}) == 2, "both handlers came to their end"
    found = await checker.check(connection, cluster.journal_directory, [job.id])
    assert found.all_completed, str(found)
    assert found.repeated_because == {"lost": 1}


async def test_a_plain_function_that_keeps_python_busy_keeps_its_lease(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    assert 2 * SHORT["lease_s"] < BUSY_S
    cluster = start_cluster(**SHORT)
    for name in ("worker-1", "worker-2"):
        cluster.worker(name)
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    submitted = await app.submit_many(app.request("busy", {"seconds": BUSY_S}) for _ in range(2))
    for job in submitted:
        await job.result(timeout=BUSY_S + 30)
        assert [(each.status, each.attempt) for each in await app.executions(job.id)] == [("succeeded", 1)]
    assert "stalled" not in cluster.logs()


async def test_an_async_handler_that_hangs_the_event_loop_loses_its_run_and_its_result(
    app: App, connection: Conn, start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(**SHORT)
    members = [cluster.worker("worker-1"), cluster.worker("worker-2")]
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    job = await app.submit("hang", {"seconds": HANG_S, "mark": str(tmp_path / "mark")})
    assert await job.result(timeout="30s") == "did not hang"
    (hung,) = [member for member in members if member.pid == cluster.lines("start")[0].pid]
    assert "loop stalled" in hung.log
    assert len(cluster.lines("end")) == 1, "it still hangs"

    await cluster.until(lambda: hung.log.count("lease lost") == 1, "the late result to be refused")
    assert [each.status for each in await app.executions(job.id)] == ["lost", "succeeded"]
    await cluster.until(lambda: refused_count(connection, hung.pid), "the refusal to be counted")
    # It continues as a worker, under a new id.
    await cluster.until(lambda: is_member(connection, hung.pid), "it to join again")


async def test_the_fence_is_the_token_even_for_the_same_worker_and_the_same_attempt(app: App, database: Postgres) -> None:
    """A run is handed back while its handler works (its claim was believed lost) and claimed again by the same worker: worker
    id and attempt are equal, only the token differs."""
    heard: list[Event] = []
    handler = ByHand()
    clock, rng = SystemClock(), Random(1)
    worker = Worker(
        database,
        app.registry,
        Settings(),
        timers=asyncio.get_running_loop(),
        clock=clock,
        emit=heard.append,
        rng=rng,
        poll_s=1.0,
        handlers=dict.fromkeys(app.registry.names, handler),
    )
    async with database.connection() as connection:
        await worker.enlist(connection)
        job = await app.submit("nap")
        intake = next(each for each in worker.intakes if "nap" in each.tasks)
        await intake.run_once()
        (first,) = worker.held_runs.all()
        await runs.finish(connection, [report(first.claimed.lease, Released("thought lost"), rng)])
        await intake.run_once()
        (second,) = [execution for execution in worker.held_runs.all() if execution is not first]
        assert second.claimed.lease.worker_id == first.claimed.lease.worker_id
        assert (first.claimed.lease.attempt, second.claimed.lease.attempt) == (1, 1)
        assert (first.claimed.lease.token, second.claimed.lease.token) == (1, 2)

        handler.started[0].done.set_result("late")
        await asyncio.sleep(0)
        await worker.reporter.run_once()
        assert (await app.job(job.id)).status == "running"
        assert [event for event in heard if isinstance(event, Ended)] == []
        assert [event.token for event in heard if isinstance(event, LeaseLost)] == [1]
        assert worker.held_runs.refused_count == 1

        handler.started[1].done.set_result("in time")
        await asyncio.sleep(0)
        await worker.reporter.run_once()
        assert await job.result(timeout="5s") == "in time"
        assert [each.status for each in await app.executions(job.id)] == ["released", "succeeded"]


async def test_a_claim_that_begins_during_a_heartbeat_is_not_taken_for_lost(app: App, database: Postgres) -> None:
    """The heartbeat sees the lease before the worker has read the claim's reply: the reply is late, not lost."""
    heard: list[Event] = []
    clock, rng = SystemClock(), Random(1)
    worker = Worker(
        database,
        app.registry,
        Settings(),
        timers=asyncio.get_running_loop(),
        clock=clock,
        emit=heard.append,
        rng=rng,
        poll_s=1.0,
    )
    job = await app.submit("nap")
    with ExitStack() as reply_on_its_way:

        async def claim(connection: Connection) -> None:
            reply_on_its_way.enter_context(worker.held_runs.claiming())
            claimed = await runs.claim(
                connection, worker_id=worker.worker_id, queues=["default"], tasks=["nap"], limit=1, grace_s=1.0
            )
            assert [run.lease.job_id for run in claimed] == [job.id]

        heartbeat = worker.make_heartbeat(Interrupted(database, "beat = w.beat + 1", claim), lambda call: call())
        async with database.connection() as connection:
            await worker.enlist(connection)
        await heartbeat.run_once()
        assert (await app.job(job.id)).status == "running"
        assert await app.executions(job.id) == []

    await heartbeat.run_once()  # that claim has ended without a run: now the lease is handed back
    assert [each.status for each in await app.executions(job.id)] == ["released"]
    assert [event.count for event in heard if isinstance(event, Reconciled)] == [1]


async def test_a_worker_that_was_cut_off_asks_handlers_before_it_forces_them_and_is_not_exhausted(
    app: App, database: Postgres
) -> None:
    """Found by the outage test: runs claimed just after an outage, before the first heartbeat, were asked to stop and forced at
    the same moment; for that moment they counted as zombies, and a healthy worker drained and ended."""
    clock = ManualClock(datetime(2026, 3, 4, 12, tzinfo=UTC))
    worker = Worker(
        database,
        app.registry,
        Settings(),
        timers=asyncio.get_running_loop(),
        clock=clock,
        emit=unheard,
        rng=Random(1),
        poll_s=1.0,
        handlers=dict.fromkeys(app.registry.names, AsyncFunction(sleep)),
    )
    heartbeat = worker.make_heartbeat(database, lambda call: call())
    async with database.connection() as connection:
        await connection.fetch("SELECT sexton.make_partitions($1, $1)", clock.database_now())
        await worker.enlist(connection)
        submissions = [submission("nap", {"seconds": 60}) for _ in range(Settings().worker_zombie_limit + 1)]
        await jobs.submit(connection, submissions, now=clock.database_now())
    intake = next(each for each in worker.intakes if "nap" in each.tasks)
    await intake.run_once()
    assert len(worker.held_runs) == len(submissions)
    await asyncio.sleep(0)  # they begin
    clock.move(timedelta(seconds=60))  # without a heartbeat

    heartbeat.watch()
    assert not worker.exhausted.is_set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert worker.reporter.pending_count == len(submissions), "all were stopped, and are to be handed back"
    heartbeat.watch()
    assert not worker.exhausted.is_set()


class Interrupted:
    """A database that does something else first, once, before a given statement."""

    def __init__(self, database: Postgres, statement: str, first: Callable[[Connection], Awaitable[None]]) -> None:
        self._database, self._statement, self._first = database, statement, first
        self._is_spent = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Interrupted]:
        async with self._database.connection() as self._connection:
            yield self

    def transaction(self) -> Any:
        return self._database.transaction()

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        if self._statement in query and not self._is_spent:
            self._is_spent = True
            await self._first(self._connection)
        return await self._connection.fetch(query, *args)

    async def execute(self, query: str) -> Any:
        return await self._connection.execute(query)


async def sleep(_: Context, seconds: float) -> None:
    await asyncio.sleep(seconds)


class ByHand:
    """Handlers that end when the test says so."""

    def __init__(self) -> None:
        self.started: list[Held] = []

    def start(self, call: Call, context: Context) -> Held:
        self.started.append(Held())
        return self.started[-1]


class Held:
    def __init__(self) -> None:
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.freed = self.done

    def ask_to_stop(self) -> None:
        pass

    def force_stop(self) -> bool:
        return False


async def refused_count(connection: Conn, pid: int) -> int:
    count: int = await connection.fetchval(
        "SELECT coalesce(max(refused_count), 0) FROM sexton.workers WHERE name LIKE '%:' || $1", str(pid)
    )
    return count


async def is_member(connection: Conn, pid: int) -> bool:
    there: bool = await connection.fetchval(
        "SELECT count(*) = 1 FROM sexton.workers WHERE name LIKE '%:' || $1 AND lost_at IS NULL AND beat > 0", str(pid)
    )
    return there
