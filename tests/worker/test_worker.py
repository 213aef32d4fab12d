"""A whole worker in this process, on a real event loop with real time: from the submission of a job to its end, and the
worker's stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest

from sexton.clock import SystemClock
from sexton.domain.job import submission
from sexton.errors import DatabaseUnavailable, SextonError
from sexton.handlers.context import Context
from sexton.operations.cancel import cancel as cancel_job
from sexton.registry import Definition, Registry
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.fleet import workers as fleet
from sexton.store.work import jobs
from sexton.telemetry.events import DatabaseAwaited, Drained, Ended, Event, ServiceFailed, WorkerJoined
from sexton.worker.process import WorkerProcess
from tests.callers import TESTER
from tests.rig import LONG_S, Between, Kind

Function = Callable[..., Any]


class Running:
    """A running worker process."""

    def __init__(self, database: Postgres, process: WorkerProcess, heard: asyncio.Queue[Event]) -> None:
        self.database, self.process, self._heard = database, process, heard
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(process.run(self.stop))

    async def heard(self, kind: type[Kind]) -> Kind:
        async with asyncio.timeout(LONG_S):
            while True:
                event = await self._heard.get()
                if isinstance(event, kind):
                    return event

    async def submit(self, task: str, payload: Any = None, **options: Any) -> UUID:
        async with self.database.connection() as connection:
            (answer,) = await jobs.submit(connection, [submission(task, {} if payload is None else payload, **options)])
            return answer.id

    async def show(self, job_id: UUID) -> jobs.JobView:
        async with self.database.connection() as connection:
            return await jobs.show(connection, job_id)

    async def executions(self, job_id: UUID) -> list[jobs.Execution]:
        async with self.database.connection() as connection:
            return await jobs.executions(connection, job_id)

    async def workers(self) -> list[fleet.Worker]:
        async with self.database.connection() as connection:
            return await fleet.workers(connection)

    async def until(self, is_true: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(LONG_S):
            while not await is_true():  # noqa: ASYNC110  (it watches the database, which sets no events here)
                await asyncio.sleep(0.005)

    async def listening(self) -> None:
        async def is_listening() -> bool:
            async with self.database.connection() as connection:
                rows = await connection.fetch(
                    "SELECT FROM pg_stat_activity WHERE application_name = 'sexton listener' AND state = 'idle' "
                    "AND query LIKE '%sexton_cancel%' AND datname = current_database()"
                )
            return len(rows) == 1

        await self.until(is_listening)

    async def out(self) -> None:
        """It has ended, by itself or on request."""
        async with asyncio.timeout(LONG_S):
            await self.task

    async def is_draining(self) -> bool:
        return self.process.worker.draining


Start = Callable[..., Running]


def _from_any_thread(loop: asyncio.AbstractEventLoop, heard: asyncio.Queue[Event], event: Event) -> None:
    loop.call_soon_threadsafe(heard.put_nowait, event)


@pytest.fixture
async def start(database: Postgres, database_url: str) -> AsyncIterator[Start]:
    async with AsyncExitStack() as exits:
        transactions = await Postgres.open(database_url)
        exits.push_async_callback(transactions.close)

        def started(*functions: Function, direct: bool = True, way: Any = None, **settings: Any) -> Running:
            registry, loop = Registry(), asyncio.get_running_loop()
            for function in functions:
                registry.add(Definition(function.__name__, function, __name__, function.__name__))
            heard: asyncio.Queue[Event] = asyncio.Queue()
            process = WorkerProcess(
                way or database,
                transactions,
                registry,
                Settings(**{"worker_concurrency": 10, "worker_grace_s": 0.4, "worker_drain_s": 5.0, **settings}),
                direct_url=database_url if direct else None,
                clock=SystemClock(),
                emit=partial(_from_any_thread, loop, heard),
                rng=Random(1),
            )
            running = Running(database, process, heard)
            exits.push_async_callback(_end, running)
            return running

        yield started


async def _end(running: Running) -> None:
    running.stop.set()
    async with asyncio.timeout(LONG_S):
        await asyncio.gather(running.task, return_exceptions=True)


async def double(ctx: Context, number: int) -> int:
    return 2 * number


def halve(ctx: Context, number: int) -> float:
    return number / 2


async def test_jobs_run_from_submission_to_their_result(start: Start) -> None:
    """A1, C1, C14: on the loop and in threads."""
    worker = start(double, halve)
    first, second = await worker.submit("double", {"number": 21}), await worker.submit("halve", {"number": 21})
    assert {(await worker.heard(Ended)).job_id, (await worker.heard(Ended)).job_id} == {first, second}
    assert (await worker.executions(first))[0].result_json == "42"
    assert (await worker.executions(second))[0].result_json == "10.5"


async def test_a_hundred_at_once(start: Start) -> None:
    """C1: ten at a time, every one once."""
    at_once = most = 0

    async def count(ctx: Context) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1

    worker = start(count)
    jobs = {await worker.submit("count") for _ in range(100)}
    assert {(await worker.heard(Ended)).job_id for _ in range(100)} == jobs
    assert 1 < most <= 10


async def test_a_notification_starts_a_run_long_before_the_next_look(start: Start) -> None:
    """B8, B10: idle, it looks only every two seconds by itself."""
    worker = start(double)
    await worker.listening()
    for _ in range(4):
        await worker.submit("double", {"number": 1})
        assert (await worker.heard(Ended)).lag_s < 0.5


async def test_without_a_direct_connection_it_polls(start: Start) -> None:
    """B10: slower, with the same results."""
    worker = start(double, direct=False, pooled_poll_s=0.05)
    await worker.heard(WorkerJoined)
    for _ in range(3):
        await worker.submit("double", {"number": 1})
        assert (await worker.heard(Ended)).status == "succeeded"


async def test_a_cancel_reaches_a_running_handler_at_once(start: Start, database: Postgres) -> None:
    """A5: by a notification, not with the next heartbeat in a minute."""
    entered = asyncio.Event()

    async def waits(ctx: Context) -> None:
        entered.set()
        await asyncio.Event().wait()

    worker = start(waits, beat_s=60, lease_s=240)
    await worker.listening()
    job_id = await worker.submit("waits")
    async with asyncio.timeout(LONG_S):
        await entered.wait()
    async with database.transaction() as connection:
        await cancel_job(connection, TESTER, job_id)
    assert (await worker.heard(Ended)).status == "cancelled"
    assert (await worker.show(job_id)).status == "cancelled"


async def test_a_draining_worker_finishes_running_handlers_and_claims_no_more(start: Start) -> None:
    """C12."""
    entered, end = asyncio.Event(), asyncio.Event()

    async def waits(ctx: Context) -> str:
        entered.set()
        await end.wait()
        return "finished"

    worker = start(waits)
    job_id = await worker.submit("waits")
    async with asyncio.timeout(LONG_S):
        await entered.wait()
    worker.stop.set()
    await worker.until(worker.is_draining)
    late = await worker.submit("waits")
    end.set()
    await worker.out()
    assert (await worker.executions(job_id))[0].result_json == '"finished"'
    assert (await worker.show(late)).status == "pending"
    assert await worker.workers() == []
    assert (await worker.heard(Drained)).handed_back_count == 0


async def test_a_run_that_does_not_finish_in_time_is_handed_back(start: Start) -> None:
    """C12: nothing is lost and nothing is spent."""
    entered = asyncio.Event()

    async def never_ends(ctx: Context) -> None:
        entered.set()
        await asyncio.Event().wait()

    worker = start(never_ends, worker_drain_s=0.05)
    job_id = await worker.submit("never_ends")
    async with asyncio.timeout(LONG_S):
        await entered.wait()
    worker.stop.set()
    await worker.out()
    assert [execution.status for execution in await worker.executions(job_id)] == ["released"]
    shown = await worker.show(job_id)
    assert (shown.status, shown.attempt) == ("pending", 0)
    assert await worker.workers() == []


async def test_a_handler_that_will_not_stop_is_left_behind_and_its_run_handed_back(start: Start) -> None:
    """C12, rule "the sweeper ends overdue runs"."""
    entered, end = threading.Event(), threading.Event()

    def deaf(ctx: Context) -> None:
        entered.set()
        end.wait(LONG_S)

    worker = start(deaf, worker_drain_s=0.05)
    job_id = await worker.submit("deaf")
    assert await asyncio.to_thread(entered.wait, LONG_S)
    worker.stop.set()
    await worker.out()
    end.set()
    assert [execution.status for execution in await worker.executions(job_id)] == ["released"]


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_a_drain_waits_for_the_reply_to_a_claim(start: Start, database: Postgres, delivery: str) -> None:
    """C12: a run leased at the last moment is handed back, or started if it may start only once; it is not left to a
    sweeper."""
    between = Between(database)
    worker = start(double, way=between)
    await worker.heard(WorkerJoined)

    async def stopped_meanwhile() -> None:
        worker.stop.set()
        await worker.until(worker.is_draining)
        for _ in range(20):
            await asyncio.sleep(0)

    async def is_claimed() -> None:
        async with database.connection() as connection:
            rows = await connection.fetch("SELECT FROM sexton.runs WHERE state = 'running'")
        if rows:
            await stopped_meanwhile()
        else:
            between.after("claim", is_claimed)

    between.after("claim", is_claimed)
    job_id = await worker.submit("double", {"number": 1}, delivery=delivery)
    await worker.out()
    expected = ("pending", "released") if delivery == "at_least_once" else ("completed", "succeeded")
    assert ((await worker.show(job_id)).status, (await worker.executions(job_id))[0].status) == expected
    assert await worker.workers() == []


async def test_with_too_many_zombies_it_drains_by_itself(start: Start) -> None:
    """Rule "the sweeper ends overdue runs": only a new process removes them."""
    end = threading.Event()

    def deaf(ctx: Context) -> None:
        end.wait(LONG_S)

    worker = start(deaf, worker_zombie_limit=3, worker_grace_s=0.01, worker_drain_s=0.1)
    for _ in range(3):
        await worker.submit("deaf", timeout=0.05)
    with pytest.raises(SextonError, match="start a new worker"):
        await worker.out()
    end.set()
    assert not worker.stop.is_set()
    assert await worker.workers() == []


async def test_with_fewer_zombies_it_continues(start: Start) -> None:
    """Rule "the sweeper ends overdue runs"."""
    end = threading.Event()

    def deaf(ctx: Context) -> None:
        end.wait(LONG_S)

    worker = start(deaf, double, worker_zombie_limit=3, worker_grace_s=0.01)
    for _ in range(2):
        await worker.submit("deaf", timeout=0.05)
        assert (await worker.heard(Ended)).status == "timed_out"
    await worker.submit("double", {"number": 1})
    assert (await worker.heard(Ended)).status == "succeeded"
    assert not worker.task.done()
    end.set()


async def test_an_idle_worker_ends_at_once(start: Start) -> None:
    """C12."""
    worker = start(double)
    await worker.heard(WorkerJoined)
    worker.stop.set()
    async with asyncio.timeout(4):
        await worker.task
    assert await worker.workers() == []


async def test_a_worker_whose_heartbeat_thread_failed_drains(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: an unexpected error in the heartbeat's thread drains the worker, before others take its runs."""

    async def broken(_url: str, **_options: Any) -> Postgres:
        raise ValueError("the password has changed")

    worker = start(double)
    monkeypatch.setattr("sexton.worker.process.Postgres.open", broken)
    failed = await worker.heard(ServiceFailed)
    assert (failed.service, str(failed.error)) == ("heartbeat", "the password has changed")
    with pytest.raises(SextonError, match="start a new worker"):
        await worker.out()
    assert await worker.workers() == []


async def test_heartbeats_come_from_a_thread_of_their_own(start: Start) -> None:
    """C4: while a handler keeps the event loop busy."""
    release = threading.Event()

    async def busy(ctx: Context) -> None:
        release.wait(LONG_S)  # blocks the loop, as bad handlers do

    worker = start(busy, beat_s=0.05, loop_stall_s=LONG_S)

    seen: list[int] = []

    def watch() -> None:
        async def main() -> None:
            database = await Postgres.open(worker.database.url, size=1)
            async with database.connection() as connection:
                while len(set(seen)) < 4:
                    rows = await connection.fetch("SELECT beat FROM sexton.workers")
                    seen.extend(row["beat"] for row in rows)
                    await asyncio.sleep(0.01)
            await database.close()

        asyncio.run(asyncio.wait_for(main(), LONG_S))
        release.set()

    await worker.heard(WorkerJoined)
    await worker.submit("busy")
    watching = threading.Thread(target=watch)
    watching.start()
    assert (await worker.heard(Ended)).status == "succeeded"
    watching.join()
    assert len(set(seen)) >= 4


async def test_nothing_is_claimed_without_a_heartbeat(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """B5: otherwise others would take its runs after a lease, while it executes them."""
    open_pool = Postgres.open

    async def no_connection_left(*args: Any, **options: Any) -> Postgres:
        raise DatabaseUnavailable("sorry, too many clients already")

    monkeypatch.setattr(Postgres, "open", no_connection_left)
    worker = start(double)
    job_id = await worker.submit("double", {"number": 4})
    await worker.heard(DatabaseAwaited)
    for intake in worker.process.worker.intakes:
        await intake.run_once()
    assert (await worker.show(job_id)).status == "pending"
    monkeypatch.setattr(Postgres, "open", open_pool)
    assert (await worker.heard(Ended)).status == "succeeded"
