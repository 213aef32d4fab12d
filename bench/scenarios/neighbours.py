"""One bad neighbour at a time: an open transaction holds a schedule, a run that is executing, an idempotency key that a client
repeats, or a limit that runs wait for; or one tenant calls 60 hosts that accept a connection and never answer. Measures how
much later the other runs start, the calls of another tenant too, and the other callers get their answers.

Each kind is measured alone and beside its neighbour in turn (ABBA). A ratio compares the p99 of typical seconds, as in `http`:
one short stall of the machine can make up a hundredth of all figures, while a neighbour that harms others affects every
second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import httpx

from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, percentile
from bench.scenarios.http import LOCAL, start_target
from bench.scenarios.submit import start_api
from bench.testbed import Testbed
from sexton.domain.targets import HttpTarget

if TYPE_CHECKING:
    from sexton.client.request import Request

SPAN_S = 6.0  # of each of the four measurements
SCHEDULES = 20  # each fires once a second
RATE = 100  # other runs per second
CALLERS = 5
AHEAD_S = 0.5
WRITTEN_AHEAD_S = 70.0  # fires are written 60 s ahead; only those that are written beside the neighbour show what it does
BUSY = "busy"
SILENT_HOSTS = 60  # of the 100 slots of the worker

NO_OP = {"handler": "note", "payload": {"number": -3, "pad": ""}}
Harm = Callable[[Testbed, str], AbstractAsyncContextManager[None]]
Measure = Callable[[float], Awaitable[list[list[float]]]]  # the figures of each second
Make = Callable[[int, datetime], "Request"]  # a run of an innocent tenant: its number, and when it is due

# A fire that was written late is due when it is written, so its time by the schedule counts.
_LAGS = """
SELECT floor(extract(epoch FROM e.due_at - $1::timestamptz))::int AS second,
  extract(epoch FROM e.started_at - e.due_at)::float8 AS lag_s
FROM (
  SELECT CASE WHEN x.origin = 'schedule' THEN x.fire_at ELSE x.due_at END AS due_at, x.started_at
  FROM sexton.executions x WHERE x.tenant = 'innocent'
) e WHERE e.due_at >= $1 AND e.due_at < $2"""
_WAITING = "SELECT EXISTS (SELECT FROM sexton.runs WHERE tenant = 'innocent' AND due_at < $1)"
_SCHEDULE = (
    """SELECT sexton.submit_schedule('note', '{"number": -2, "pad": ""}', name => $1, tenant => $2, every => '1 second')"""
)
_RUN = "SELECT id FROM sexton.runs WHERE tenant = 'bad' AND state = 'running' FOR UPDATE"


async def run(testbed: Testbed, options: Options) -> Figures:
    span_s = 2.0 if options.quick else SPAN_S
    testbed.start_scheduler()
    testbed.start_worker(LOCAL)
    await testbed.until_ready()
    url = await start_api(testbed)
    target = start_target(testbed)
    await testbed.warm_up()
    for number in range(SCHEDULES):
        await testbed.server.monitor.execute(_SCHEDULE, f"schedule {number}", "innocent")
    numbers = count()

    def note(number: int, at: datetime) -> Request:
        return testbed.note.request(number, PAD, tenant="innocent", run_at=at)

    def call(number: int, at: datetime) -> Request:
        return testbed.app.request(HttpTarget(f"{target}/{number}"), {}, tenant="innocent", run_at=at)

    lags = partial(_lags, testbed, numbers, note)
    call_lags = partial(_lags, testbed, numbers, call)

    async def answers(span_s: float) -> list[list[float]]:
        return await _answers(url, span_s)

    kinds: dict[str, tuple[Harm, Measure]] = {
        "schedule": (_hold_schedule, lags),
        "run": (_hold_run, lags),
        "limit": (_hold_limit, lags),
        "key": (_hold_key, answers),
        "silent": (_call_silent_hosts, call_lags),
    }
    await lags(1.0)
    await call_lags(1.0)
    await answers(1.0)
    figures: Figures = {}
    for kind, (harm, measure) in kinds.items():
        figures |= await _compare(testbed, url, kind, harm, measure, span_s)
    return {"worst_ratio": max(figures[f"{kind}_ratio"] for kind in kinds), **figures}


async def _compare(testbed: Testbed, url: str, kind: str, harm: Harm, measure: Measure, span_s: float) -> Figures:
    testbed.say(f"others beside: {kind}")
    alone = await measure(span_s)
    async with harm(testbed, url):
        beside = [*await measure(span_s), *await measure(span_s)]
    alone += await measure(span_s)
    return {
        f"{kind}_ratio": _typical_p99(beside) / _typical_p99(alone),
        f"{kind}_alone_p99_s": _typical_p99(alone),
        f"{kind}_beside_p99_s": _typical_p99(beside),
        f"{kind}_beside_max_s": max(max(second) for second in beside),
    }


def _typical_p99(seconds: Sequence[Sequence[float]]) -> float:
    return median(percentile(second, 99) for second in seconds)


async def _lags(testbed: Testbed, numbers: count[int], make: Make, span_s: float) -> list[list[float]]:
    """Lags of runs that are submitted ahead, and of schedules that fire every second."""
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    end = begin + timedelta(seconds=span_s)
    due = [begin + timedelta(seconds=n / RATE) for n in range(round(RATE * span_s))]
    while due:
        ready = [at for at in due if at < datetime.now(UTC) + timedelta(seconds=AHEAD_S)]
        if ready:
            await testbed.submit([make(next(numbers), at) for at in ready])
            due = due[len(ready) :]
        await asyncio.sleep(0.02)

    async def is_over() -> bool:
        return datetime.now(UTC) > end and not await testbed.server.monitor.fetchval(_WAITING, end)

    await testbed.until(is_over, within_s=60 + span_s, every_s=0.05)
    await asyncio.sleep(AHEAD_S)  # reports arrive in batches
    rows = await testbed.server.monitor.fetch(_LAGS, begin, end)
    return [[row["lag_s"] for row in rows if row["second"] == second] for second in range(int(span_s))]


async def _answers(url: str, span_s: float) -> list[list[float]]:
    """How long callers with other keys waited, one call after the other."""
    seconds: list[list[float]] = [[] for _ in range(int(span_s))]
    began = time.monotonic()

    async def submit() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            while (at := time.monotonic() - began) < len(seconds):
                answer = await http.post("/v1/jobs", json={**NO_OP, "idempotency_key": str(uuid4())})
                answer.raise_for_status()
                seconds[int(at)].append(time.monotonic() - began - at)

    await asyncio.gather(*(submit() for _ in range(CALLERS)))
    return [second for second in seconds if second]


@asynccontextmanager
async def _open_transaction(testbed: Testbed) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(testbed.server.url)
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _hold_schedule(testbed: Testbed, url: str) -> AsyncIterator[None]:
    await testbed.server.monitor.execute(_SCHEDULE, "held", "bad")
    async with _open_transaction(testbed) as connection:
        await connection.execute(_SCHEDULE.replace("1 second", "2 seconds"), "held", "bad")
        await asyncio.sleep(WRITTEN_AHEAD_S)
        yield


@asynccontextmanager
async def _hold_run(testbed: Testbed, url: str) -> AsyncIterator[None]:
    """Its handler ends after a second, but its worker cannot report it."""
    await testbed.submit([testbed.doze.request(-4, 1.0, PAD, tenant="bad")])
    async with _open_transaction(testbed) as connection:

        async def is_locked() -> bool:
            return bool(await connection.fetch(_RUN))

        await testbed.until(is_locked, within_s=10, every_s=0.01)
        yield


@asynccontextmanager
async def _hold_limit(testbed: Testbed, url: str) -> AsyncIterator[None]:
    """Runs wait for the limit, and finished runs have to return their slots."""
    limited = [testbed.doze.request(-5, 0.2, PAD, tenant="bad", limit={"key": BUSY, "running": 2}) for _ in range(20)]
    await testbed.submit(limited)
    async with _open_transaction(testbed) as connection:
        await connection.execute("SELECT FROM sexton.limits WHERE key = $1 FOR UPDATE", BUSY)
        yield


@asynccontextmanager
async def _hold_key(testbed: Testbed, url: str) -> AsyncIterator[None]:
    body = {**NO_OP, "idempotency_key": BUSY}

    async def repeat() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            while True:
                with suppress(httpx.HTTPError):
                    await http.post("/v1/jobs", json=body)

    async with _open_transaction(testbed) as connection:
        await connection.execute("""SELECT sexton.submit('note', '{"number": -3, "pad": ""}', key => $1)""", BUSY)
        caller = asyncio.create_task(repeat())
        try:
            yield
        finally:
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)


@asynccontextmanager
async def _call_silent_hosts(testbed: Testbed, url: str) -> AsyncIterator[None]:
    """Each host accepts the connection and never answers; each call keeps a slot of the worker until its timeout."""
    calls: set[int] = set()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.add(writer.get_extra_info("sockname")[1])
        await reader.read()
        writer.close()

    async with AsyncExitStack() as open_servers:
        servers = [await asyncio.start_server(ignore, "127.0.0.1", 0) for _ in range(SILENT_HOSTS)]
        for server in servers:
            open_servers.callback(server.close)
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        targets = [HttpTarget(f"http://127.0.0.1:{port}/") for port in ports]
        jobs = await testbed.app.submit_many([testbed.app.request(one, {}, tenant="bad", timeout=600) for one in targets])

        async def all_are_called() -> bool:
            return len(calls) == SILENT_HOSTS

        await testbed.until(all_are_called, within_s=30, every_s=0.05)
        yield
        for job in jobs:
            await testbed.app.cancel(job.id)


SCENARIO = Scenario(
    "neighbours",
    "others beside an open transaction that holds a schedule, a run, a limit or a key, and beside 60 hosts that never answer",
    {"worst_ratio": Target(1.5, 1.1)},
    run,
)
