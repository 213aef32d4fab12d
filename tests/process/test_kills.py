"""Repeated kill -9: no run is lost or leased twice, and effects that must happen once happen once."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.sizes import size

from . import checker
from .cluster import SHORT, Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

JOBS = size("JOBS", 4_000)
SPREAD_S = size("SPREAD_S", 9)  # the jobs are due within this time
COUNTER_JOBS = size("COUNTER_JOBS", 1_000)
COUNTER_CONCURRENCY = size("COUNTER_CONCURRENCY", 8)
RECOVERY_S_LIMIT = 10.0


@pytest.mark.timeout(60 + JOBS / 200)
async def test_a_process_killed_every_second_costs_no_job_and_doubles_no_lease(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    # A sweeper must watch for a whole lease, and here no sweeper lives longer than five seconds, including its start.
    cluster = start_cluster(**{**SHORT, "lease_s": 2.0}, worker_concurrency=200)
    names = ["worker-1", "scheduler-1", "worker-2", "scheduler-2", "worker-3"]
    for name in names:
        (cluster.worker if name.startswith("worker") else cluster.scheduler)(name)
    await cluster.until_ready()
    rng, now = Random(1), datetime.now(UTC)
    submitted = await app.submit_many(
        app.request("nap", {"seconds": rng.uniform(0, 0.2)}, run_at=now + timedelta(seconds=rng.uniform(0, SPREAD_S)))
        for _ in range(JOBS)
    )
    began = time.monotonic()
    kills = await kill_in_turn(cluster, names, lambda: has_ended(connection, JOBS), every_s=1.0)
    took_s = time.monotonic() - began
    found = await checker.check(connection, cluster.journal_directory, [job.id for job in submitted])
    figure(f"kills: {kills} kills in the {took_s:.1f} s of {found}")
    assert found.all_completed, f"{found}\n{cluster.logs()}"
    assert kills >= 3
    assert found.repeated_because["lost"] > 0, "no kill hit anything: the test has proven nothing"


@pytest.mark.timeout(120)
async def test_a_counter_raised_inside_the_runs_transaction_ends_exactly_right(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    await connection.execute("CREATE TABLE public.counter AS SELECT 0 AS value")
    cluster = start_cluster(**SHORT, worker_concurrency=COUNTER_CONCURRENCY)
    names = ["worker-1", "worker-2", "worker-3"]
    for name in names:
        cluster.worker(name)
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    submitted = await app.submit_many(app.request("increment") for _ in range(COUNTER_JOBS))
    rng = Random(2)
    kills = await kill_in_turn(
        cluster, (rng.choice(names) for _ in cycle("k")), lambda: has_ended(connection, COUNTER_JOBS), every_s=0.5, rng=rng
    )
    found = await checker.check(
        connection, cluster.journal_directory, [job.id for job in submitted], transactional_tasks=["increment"]
    )
    value = await connection.fetchval("SELECT value FROM public.counter")
    figure(f"counter: {value} of {COUNTER_JOBS} after {kills} kills; {found}")
    assert value == COUNTER_JOBS
    assert found.all_completed, f"{found}\n{cluster.logs()}"
    assert kills >= 3


@pytest.mark.timeout(90)
async def test_fifty_running_jobs_of_a_killed_worker_run_elsewhere_within_ten_seconds(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    cluster = start_cluster()  # with default settings
    doomed = cluster.worker("doomed")
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    await app.submit_many([app.request("nap", {"seconds": 60}) for _ in range(50)] + [app.request("child")])
    await cluster.until(lambda: len(cluster.lines("start")) == 51, "51 starts")
    family = [*psutil.Process(doomed.pid).children(recursive=True)]
    assert len(family) >= 2, "the child and what it started"
    cluster.worker("heir")
    await cluster.until_ready("heir")

    cluster.kill("doomed")
    gone_s = await cluster.until(lambda: not any(alive(each) for each in family), f"the end of {family}")
    waited_s = gone_s + await cluster.until(lambda: len(cluster.lines("start")) == 102, "all to run elsewhere", within_s=20)
    figure(f"recovery: 51 runs of a killed worker run elsewhere after {waited_s:.1f} s; its children gone after {gone_s:.2f} s")
    assert waited_s < RECOVERY_S_LIMIT
    assert {line.pid for line in cluster.lines("start")[51:]}.isdisjoint({doomed.pid})


async def kill_in_turn(
    cluster: Cluster,
    names: Iterable[str] | Sequence[str],
    is_over: Callable[[], object],
    *,
    every_s: float,
    rng: Random | None = None,
) -> int:
    """Kills and restarts one member after the other until the time is up, then leaves all running. Returns how many it
    killed."""
    kills = 0
    turn = cycle(names) if isinstance(names, list) else iter(names)
    for name in turn:
        pause_s = every_s if rng is None else rng.uniform(0.2, 2 * every_s - 0.2)
        try:
            await cluster.until(is_over, "the end", within_s=pause_s)
        except AssertionError:
            pass
        else:
            break
        cluster.kill(name)
        cluster.restart(name)
        kills += 1
        assert kills < 600, cluster.logs()
    return kills


async def has_ended(connection: Conn, count: int) -> bool:
    ended: int = await connection.fetchval("SELECT count(*) FROM sexton.endings")
    await asyncio.sleep(0.1)
    return ended >= count


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
