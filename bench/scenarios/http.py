"""Jobs that call a URL: how many one worker makes per second, how late they arrive at a given rate, and how late a live host's
jobs become while ten thousand jobs of two dead hosts are queued. One of these refuses connections, the other drops them.

A job's lag is the time from its due time to the arrival of its request at the server. The live host is measured alone and
beside the dead ones in turn (ABBA AB), so that effects of the database's age are the same for both. `lag_ratio` compares the
p99 of typical seconds, `lag_ratio_p99` those of all lags. `onset` is the moment when the dead hosts' jobs arrive: each of them
is claimed and sent away once, in the order of their due times, before jobs that are due later.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import count
from statistics import fmean, median

from bench import record
from bench.scenario import Figures, Options, Scenario, Target, costs, lags, percentile
from bench.testbed import Process, Testbed
from sexton.client.request import Request
from sexton.domain.targets import HttpTarget

RATE = 1_500.0
SPAN_S = 20.0
QUEUED = 20_000  # for the throughput
DEAD_JOBS = 10_000  # for both dead hosts together
BESIDE_RATE = 300.0
BESIDE_SPAN_S = 15.0  # of each of the six measurements
ONSET_S = 10.0
TICK_S = 0.02
AHEAD_S = 0.5
LOCAL = {"SEXTON_OUTBOUND_ALLOW": "127.0.0.1:*"}  # a worker that may call this machine
FILLERS = 8  # connections that are never accepted, so that the listen queue is full


async def run(testbed: Testbed, options: Options) -> Figures:
    jobs = options.jobs or QUEUED
    span_s = 2.0 if options.quick else SPAN_S
    url = start_target(testbed)
    testbed.start_scheduler()
    await testbed.until_ready()
    drained = await _drain(testbed, url, jobs)
    streams = count(10 * jobs, 10 * jobs)  # the first job number of each stream
    await _stream(testbed, url, next(streams), 50.0, 2.0)  # opens connections in every process
    held = await _stream(testbed, url, next(streams), RATE, span_s)
    return {**drained, **lags(held), **await _beside_the_dead(testbed, url, streams, options), **await _spent(testbed)}


async def _beside_the_dead(testbed: Testbed, url: str, streams: Iterator[int], options: Options) -> Figures:
    beside_s, onset_s = (3.0, 1.0) if options.quick else (BESIDE_SPAN_S, ONSET_S)
    dead_count = options.jobs or DEAD_JOBS
    alone: list[float] = []
    beside: list[float] = []
    onset: list[float] = []

    async def measure(lags: list[float], span_s: float) -> None:
        lags += await _stream(testbed, url, next(streams), BESIDE_RATE, span_s)

    async def dead_jobs_arrive() -> None:
        testbed.say(f"{dead_count:,} jobs for two dead hosts arrive")
        requests = [_request(testbed, dead[n % 2], n) for n in range(dead_count)]
        await asyncio.gather(measure(onset, onset_s), testbed.submit(requests))

    with _black_hole() as swallowing, _refusing() as refusing:
        dead = [f"http://127.0.0.1:{port}" for port in (swallowing, refusing)]
        await measure(alone, beside_s)
        await dead_jobs_arrive()
        await measure(beside, beside_s)
        await measure(beside, beside_s)
        await _forget_all(testbed)
        await measure(alone, beside_s)
        await measure(alone, beside_s)
        await dead_jobs_arrive()
        await measure(beside, beside_s)
    return {
        "lag_ratio": _typical_p99(beside) / _typical_p99(alone),
        "lag_ratio_mean": fmean(beside) / fmean(alone),
        "lag_ratio_p50": percentile(beside, 50) / percentile(alone, 50),
        "lag_ratio_p99": percentile(beside, 99) / percentile(alone, 99),
        "alone_lag_p50_s": percentile(alone, 50),
        "alone_lag_p99_s": percentile(alone, 99),
        "beside_lag_p50_s": percentile(beside, 50),
        "beside_lag_p99_s": percentile(beside, 99),
        "onset_lag_p50_s": percentile(onset, 50),
        "onset_lag_max_s": max(onset),
    }


def start_target(testbed: Testbed) -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    log = testbed.record.path.with_name("target.log")
    environment = {**os.environ, record.VARIABLE: str(testbed.record.path)}
    testbed.processes.append(Process("target", [str(port)], environment, log, module="bench.http_target"))
    return f"http://127.0.0.1:{port}"


def _request(testbed: Testbed, url: str, number: int, run_at: datetime | None = None) -> Request:
    return testbed.app.request(HttpTarget(f"{url}/{number}"), {"n": number}, run_at=run_at)


async def _drain(testbed: Testbed, url: str, jobs: int) -> Figures:
    testbed.say(f"submitting {jobs:,} jobs that call a URL")
    await testbed.submit([_request(testbed, url, number) for number in range(jobs)])
    await testbed.server.monitor.execute("VACUUM ANALYZE sexton.runs")
    testbed.say("calling")
    before = await testbed.server.counters()
    testbed.start_worker(LOCAL)
    await testbed.until_started(1, within_s=30)
    missed, usage_since = testbed.record.count, testbed.meter()
    await testbed.until_started(jobs, within_s=60 + jobs / 200)
    await testbed.until_empty()
    usage = usage_since()
    after = await testbed.server.counters()
    starts = testbed.record.first_starts().values()
    return {
        "jobs_per_s": (jobs - 1) / (max(starts) - min(starts)),
        **testbed.record.tally(),
        **costs(usage, before, after, jobs, metered=jobs - missed),
    }


async def _stream(testbed: Testbed, url: str, first: int, rate: float, span_s: float) -> list[float]:
    """The lags of a steady stream, each job submitted shortly before it is due."""
    await testbed.server.monitor.execute(
        "VACUUM ANALYZE sexton.runs"
    )  # otherwise earlier load affects the figures more than the compared difference
    testbed.say(f"{rate:,.0f} calls per second for {span_s:.0f} s")
    already, total = testbed.record.count, int(rate * span_s)
    begin = time.time() + AHEAD_S
    due = [begin + n / rate for n in range(total)]
    given = 0
    while given < total:
        ready = min(total, int((time.time() + AHEAD_S - begin) * rate))
        if ready > given:
            numbers = range(given, ready)
            await testbed.submit([_request(testbed, url, first + n, datetime.fromtimestamp(due[n], UTC)) for n in numbers])
            given = ready
        await asyncio.sleep(TICK_S)
    await testbed.until_started(already + total, within_s=30 + span_s)
    starts = dict(reversed(testbed.record.rows()[already:]))
    return [starts[first + n] - due[n] for n in range(total)]


def _typical_p99(lags: Sequence[float]) -> float:
    """The p99 of each second, and the median of those: one short stall of the machine can make up a hundredth of all lags,
    while a dead host affects every second."""
    second = int(BESIDE_RATE)
    return median(percentile(lags[begin : begin + second], 99) for begin in range(0, len(lags), second))


async def _forget_all(testbed: Testbed) -> None:
    """Removes the jobs as if they had not been submitted. A try that is running finds that its lease is gone."""
    quiet = 0
    while quiet < 3:
        gone = await testbed.server.monitor.fetchval(
            "WITH gone AS (DELETE FROM sexton.runs RETURNING 1) SELECT count(*) FROM gone"
        )
        quiet = 0 if gone else quiet + 1
        await asyncio.sleep(0.2)


async def _spent(testbed: Testbed) -> Figures:
    """How the dead hosts' runs were treated: tries that counted, and runs that were sent away without a try."""
    rows = await testbed.server.monitor.fetch("SELECT status, count(*) AS count FROM sexton.executions GROUP BY status")
    counts = {row["status"]: row["count"] for row in rows}
    return {"dead_parked": counts.get("snoozed", 0), "dead_tried": counts.get("failed", 0) + counts.get("timed_out", 0)}


@contextmanager
def _black_hole() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listening:
        port = listening.getsockname()[1]
        fillers = [_connecting(port) for _ in range(FILLERS)]
        try:
            yield port
        finally:
            for filler in fillers:
                filler.close()


def _connecting(port: int) -> socket.socket:
    filler = socket.socket()
    filler.setblocking(False)
    filler.connect_ex(("127.0.0.1", port))
    return filler


@contextmanager
def _refusing() -> Iterator[int]:
    """A port that is bound but does not listen, so that no other program can take it."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


SCENARIO = Scenario(
    "http",
    "20,000 jobs that call a URL; 1,500 a second; 300 a second beside 10,000 jobs for two dead hosts",
    {"jobs_per_s": Target(1_500.0, 2_000.0), "lag_p99_s": Target(1.0, 0.25), "lag_ratio": Target(1.2, 1.05)},
    run,
)
