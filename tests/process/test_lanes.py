"""C8, C10: which run starts next. Strict order of lanes on saturated workers, ageing on and off, and serial keys under
SIGKILL."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.sizes import size

from . import journal, trace
from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

SLOTS = 4
HANDLER_S = 0.2
CRITICAL_JOBS = size("CRITICAL_JOBS", 12)
SERIAL_RUNS = size("SERIAL_RUNS", 150)  # the requirement is 1,000
SERIAL_KILL_S = 1.0
LONG_NAP_S = 0.4  # of every tenth job: a kill waits for one of them, and hits it
AGEING_S = 2.0


@pytest.mark.timeout(60 + CRITICAL_JOBS)
async def test_a_critical_job_starts_next_whatever_backlog_there_is_in_the_low_lane(
    app: App, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """C8: it waits for at most the duration of one handler, and starts before every run that has not started."""
    cluster = start_cluster(**SHORT, worker_concurrency=SLOTS)
    for name in ("worker-1", "worker-2"):
        cluster.worker(name)
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    rng = Random(1)
    count = int(2 * 2 * SLOTS / HANDLER_S * (CRITICAL_JOBS / 2 + 2))
    await app.submit_many(app.request("nap", {"seconds": HANDLER_S}, priority="low") for _ in range(count))
    await cluster.until(lambda: len(cluster.lines("start")) > 4 * SLOTS, "a saturated fleet")
    asked = {}
    for _ in range(CRITICAL_JOBS):
        job = await app.submit("nap", {"seconds": 0}, priority="critical")
        asked[job.id] = time.monotonic()
        await asyncio.sleep(rng.uniform(0.2, 0.5))
    await cluster.until(lambda: asked.keys() <= {line.job_id for line in cluster.lines("start")}, "the critical ones to start")
    starts = cluster.lines("start")
    assert len(starts) < count, "the backlog ran out"
    began = {line.job_id: line.at for line in starts if line.job_id in asked}
    waits_s = sorted(began[job] - at for job, at in asked.items())
    passed = [sum(at < line.at < began[job] for line in starts if line.job_id not in asked) for job, at in asked.items()]
    figure(
        f"lanes: {CRITICAL_JOBS} critical jobs beside a low backlog began after {1e3 * waits_s[len(waits_s) // 2]:.0f} ms "
        f"(worst {1e3 * waits_s[-1]:.0f} ms) with handlers of {1e3 * HANDLER_S:.0f} ms, and let {max(passed)} of it pass"
    )
    assert max(passed) <= 2 * SLOTS, "each slot ends one handler at most before it starts"


@pytest.mark.timeout(60)
async def test_with_ageing_the_low_lane_gets_its_turn_below_a_steady_stream_and_without_it_does_not(
    app: App, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """C8: off unless the queue sets it."""
    cluster = start_cluster(**SHORT, worker_concurrency=2)
    cluster.scheduler("scheduler")
    for queue in ("ageing", "plain"):
        cluster.worker(queue, worker_queues=queue)
    await cluster.until_ready()
    await app.set_queue("ageing", ageing=AGEING_S)
    low = {}
    for queue in ("ageing", "plain"):
        await app.submit_many(app.request("nap", {"seconds": 0.1}, queue=queue) for _ in range(30))
        low[queue] = {
            job.id for job in await app.submit_many(app.request("nap", {}, queue=queue, priority="low") for _ in range(5))
        }
    submitted_at = time.monotonic()

    def low_starts(queue: str) -> list[float]:
        return [line.at - submitted_at for line in cluster.lines("start") if line.job_id in low[queue]]

    while time.monotonic() < submitted_at + 1.5 * AGEING_S or (
        len(low_starts("ageing")) < 5 and time.monotonic() < submitted_at + 5 * AGEING_S
    ):
        await app.submit_many(
            app.request("nap", {"seconds": 0.1}, queue=queue) for queue in ("ageing", "plain") for _ in range(10)
        )
        await asyncio.sleep(0.4)  # two slots execute eight of them
    aged, plain = low_starts("ageing"), low_starts("plain")
    figure(
        f"lanes: with ageing of {AGEING_S:g} s low runs began after {min(aged, default=0):.1f} to {max(aged, default=0):.1f} s "
        f"below a steady stream; without, {len(plain)} of 5"
    )
    assert len(aged) == 5
    assert min(aged) >= AGEING_S - 0.1
    assert plain == []


@pytest.mark.timeout(60 + SERIAL_RUNS / 5)
async def test_a_serial_key_runs_one_at_a_time_in_order_of_due_time_while_workers_are_killed(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """C10: a killed run is executed again before the next one; with jobs that are due later, and two schedulers."""
    cluster = start_cluster(**{**SHORT, "lease_s": 2.0}, worker_concurrency=5)
    names = [f"worker-{number}" for number in (1, 2, 3, 4)]
    for name in names:
        cluster.worker(name)
    for name in ("scheduler-1", "scheduler-2"):
        cluster.scheduler(name)
    await cluster.until_ready()
    rng, first_at = Random(2), datetime.now(UTC) + timedelta(seconds=1)
    dues = [first_at + timedelta(milliseconds=10 * number) for number in range(SERIAL_RUNS)]
    rng.shuffle(dues)
    limit = {"key": "ledger", "ordered": True}
    naps_s = [LONG_NAP_S if number % 10 == 0 else 0.005 for number in range(SERIAL_RUNS)]
    submitted = await app.submit_many(
        app.request("nap", {"seconds": nap_s}, limit=limit, run_at=due) for nap_s, due in zip(naps_s, dues, strict=True)
    )
    due_of = {job.id: due for job, due in zip(submitted, dues, strict=True)}
    reaper = trace.Reaper(cluster, rng)

    def spans() -> list[trace.Span]:
        return trace.spans(journal.read(cluster.journal_directory), reaper.deaths, due_of)

    def napping() -> list[int]:
        """The process of a handler that has run for a moment, as only the long ones do."""
        return [span.pid for span in spans() if span.ended_at == trace.NEVER and span.began_at < time.monotonic() - 0.03]

    began_at = time.monotonic()
    ended = 0
    while ended < 0.8 * SERIAL_RUNS and len(reaper.deaths) < SERIAL_RUNS / 30:
        await asyncio.sleep(rng.uniform(0.5, 1.5) * SERIAL_KILL_S)
        while not reaper.hit_one(names, napping) and ended < 0.8 * SERIAL_RUNS:
            ended = await connection.fetchval("SELECT count(*) FROM sexton.endings")
            await asyncio.sleep(0.02)
    over = "SELECT count(*) = $1 FROM sexton.endings"
    await cluster.until(lambda: connection.fetchval(over, SERIAL_RUNS), "the end", within_s=30 + SERIAL_RUNS / 10)
    took_s = time.monotonic() - began_at
    found = spans()
    started = [due_of[span.job_id] for span in found]
    disorder = sum(later < earlier for earlier, later in pairwise(started))
    most, hits = trace.most_at_once(found), sum(span.is_killed for span in found)
    figure(
        f"lanes: serial key of {SERIAL_RUNS} runs: {disorder} out of order, at most {most} at once, "
        f"{len(reaper.deaths)} kills that hit {hits}, {took_s:.1f} s"
    )
    assert {span.job_id for span in found} == due_of.keys()
    assert most == 1, [pair for pair in pairwise(found) if pair[0].ended_at > pair[1].began_at]
    assert disorder == 0
    assert hits > 0, "no kill hit anything: the test has proven nothing"
