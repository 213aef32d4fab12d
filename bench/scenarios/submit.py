"""Submission: in bulk through the SDK, from the call to the commit; over HTTP in batches and one by one, until the answer that
the job is durable."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench import http_load
from bench.app import PAD
from bench.scenario import Figures, Options, Scenario, Target, per_job_us
from bench.testbed import READY_S, Testbed

JOBS = 100_000
BATCH = 1_000
CALLERS = 4
SPAN_S = 8.0  # of each kind of HTTP submission, at full size


class Http(NamedTuple):
    """One kind of POST: how many jobs in a body, over how many connections."""

    suffix: str
    batch: int | None  # none: single jobs
    connections: int


HTTP = (
    Http("http_batch", 1_000, 2),
    Http("http_batch_100", 100, 4),
    Http("http_single", None, 32),
    Http("http_single_1_connection", None, 1),
)


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or JOBS
    figures: Figures = {"batch": BATCH, "load": http_load.generator()}
    await _submit(testbed, range(-BATCH, 0))
    testbed.say(f"submitting {jobs:,} jobs")
    figures |= await _metered(testbed, "", lambda: _whole(testbed, jobs))
    testbed.say(f"submitting {jobs:,} jobs in calls of {BATCH:,}")
    figures |= await _metered(testbed, "batches", lambda: _in_bulk(testbed, jobs, callers=1))
    testbed.say(f"submitting {jobs:,} jobs from {CALLERS} callers")
    figures |= await _metered(testbed, "concurrent", lambda: _in_bulk(testbed, jobs, callers=CALLERS))

    url = await start_api(testbed)
    span_s = max(1.0, SPAN_S * min(1.0, jobs / JOBS))
    with tempfile.TemporaryDirectory() as folder:
        for way in HTTP:
            testbed.say(f"{way.suffix} over {way.connections} connections")
            await _post(way, url, 1.0, Path(folder))  # the first request of a kind plans its statements and connects
            figures |= await _metered(testbed, way.suffix, lambda way=way: _post(way, url, span_s, Path(folder)))  # type: ignore[misc]
    return {**figures, "hot_statements": await testbed.server.hot_statements()}


class Done(NamedTuple):
    jobs: int
    span_s: float
    load_s: float = 0.0  # CPU of the load generator
    p50_s: float | None = None
    p99_s: float | None = None


async def _metered(testbed: Testbed, suffix: str, work: Callable[[], Awaitable[Done]]) -> Figures:
    before, stored_before = await testbed.server.counters(), await _stored(testbed)
    usage_since = testbed.meter()
    done = await work()
    usage = usage_since()
    stored = await _stored(testbed) - stored_before
    after = await testbed.server.counters()
    if stored < done.jobs:
        raise RuntimeError(f"{suffix or 'bulk'}: {done.jobs:,} jobs were acknowledged, and {stored:,} are there")
    is_http = done.p50_s is not None
    ours_s = usage.api_s if is_http else usage.client_s  # over HTTP the client is a load generator, not Sexton
    figures: dict[str, Any] = {
        "jobs_per_s": done.jobs / done.span_s,
        "cpu_us_per_job": per_job_us(None if usage.server_s is None else ours_s + usage.server_s, done.jobs),
        "cpu_us_per_job_client": per_job_us(usage.client_s + done.load_s, done.jobs),
        "cpu_us_per_job_server": per_job_us(usage.server_s, done.jobs),
        "wal_bytes_per_job": (after.wal_bytes - before.wal_bytes) / done.jobs,
        "statements_per_job": None if after.statements is None else (after.statements - (before.statements or 0)) / done.jobs,
    }
    if is_http:
        figures |= {
            "cpu_us_per_job_api": per_job_us(usage.api_s, done.jobs),
            "post_p50_s": done.p50_s,
            "post_p99_s": done.p99_s,
        }
    return {f"{key}_{suffix}" if suffix else key: value for key, value in figures.items()}


async def _in_bulk(testbed: Testbed, jobs: int, *, callers: int) -> Done:
    share = jobs // callers
    started_at = time.perf_counter()
    await asyncio.gather(*(_submit(testbed, range(caller * share, (caller + 1) * share)) for caller in range(callers)))
    return Done(share * callers, time.perf_counter() - started_at)


async def _whole(testbed: Testbed, jobs: int) -> Done:
    """In one call: all jobs or none."""
    started_at = time.perf_counter()
    await testbed.app.submit_many(testbed.note.request(number, PAD) for number in range(jobs))
    return Done(jobs, time.perf_counter() - started_at)


async def _submit(testbed: Testbed, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, BATCH):
        await testbed.app.submit_many(testbed.notes(range(start, min(start + BATCH, numbers.stop))))


async def start_api(testbed: Testbed) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    testbed.start_api(port)
    async with httpx.AsyncClient() as client:

        async def is_ready() -> bool:
            try:
                return (await client.get(f"{url}/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        await testbed.until(is_ready, within_s=READY_S, every_s=0.1)
    return url


async def _post(way: Http, url: str, span_s: float, folder: Path) -> Done:
    job = {"handler": "note", "payload": {"number": 1, "pad": PAD}}
    path, document = ("/v1/jobs", job) if way.batch is None else ("/v1/jobs/batch", [job] * way.batch)
    posted = await http_load.post(
        url + path, json.dumps(document).encode(), connections=way.connections, span_s=span_s, folder=folder
    )
    if posted.fault_count or posted.accepted_count < posted.sent_count:
        raise RuntimeError(f"{way.suffix}: {posted.accepted_count} of {posted.sent_count} were accepted, {posted}")
    return Done(posted.accepted_count * (way.batch or 1), posted.span_s, posted.cpu_s, posted.p50_s, posted.p99_s)


async def _stored(testbed: Testbed) -> int:
    return int(await testbed.server.monitor.fetchval("SELECT count(*) FROM sexton.runs"))


SCENARIO = Scenario(
    "submit",
    "SDK bulk, HTTP batches and single POSTs",
    {
        "jobs_per_s": Target(40_000, 60_000),
        "jobs_per_s_http_batch": Target(12_000, 20_000),
        "jobs_per_s_http_single": Target(1_200, 2_000),
    },
    run,
)
