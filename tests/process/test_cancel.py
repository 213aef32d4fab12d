"""Cancels jobs in each state and with each kind of handler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
import pytest

from sexton import JobFailed, NotAllowedIn

from .cluster import Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    import asyncpg

    from sexton import App, Submitted

    Conn = asyncpg.Connection[asyncpg.Record]

GRACE_S = 1.0
BEAT_S = 30.0
SOON_S = BEAT_S / 2  # a notification carries the request; the next heartbeat alone would take longer


@pytest.fixture
async def cluster(start_cluster: StartCluster) -> Cluster:
    cluster = start_cluster(worker_grace_s=GRACE_S, worker_concurrency=2, beat_s=BEAT_S, lease_s=4 * BEAT_S)
    cluster.worker("worker")
    await cluster.until_ready()
    return cluster


async def test_a_job_that_waits_never_starts(app: App, cluster: Cluster) -> None:
    job = await app.submit("nap", delay="1h")
    assert await app.cancel(job.id) == (1, 0)
    assert (await app.job(job.id)).status == "cancelled"
    assert cluster.lines("start") == []


async def test_a_job_that_has_ended_cannot_be_cancelled(app: App, cluster: Cluster) -> None:
    job = await app.submit("nap")
    await job.result(timeout="10s")
    with pytest.raises(NotAllowedIn, match="completed"):
        await app.cancel(job.id)


async def test_a_running_coroutine_is_cancelled_at_once(app: App, cluster: Cluster, figure: Callable[[str], None]) -> None:
    job = await running(app, cluster, "nap", seconds=60)
    took_s = await cancelled(app, job)
    figure(f"cancel of a coroutine: {took_s * 1000:.0f} ms")
    assert took_s < SOON_S


async def test_a_running_process_is_killed_after_the_grace(app: App, cluster: Cluster) -> None:
    job = await running(app, cluster, "child")
    line = cluster.lines("start")[0]
    assert psutil.pid_exists(line.pid)
    took_s = await cancelled(app, job)
    assert GRACE_S <= took_s < GRACE_S + SOON_S
    await cluster.until(lambda: not is_running(line.pid) and not is_running(int(line.note)), "both processes to be gone")


async def test_a_thread_that_checks_for_cancellation_stops(app: App, cluster: Cluster) -> None:
    job = await running(app, cluster, "polite")
    assert await cancelled(app, job) < SOON_S
    assert [line.job_id for line in cluster.lines("told")] == [job.id]


async def test_a_thread_that_ignores_a_cancel_holds_its_slot_after_its_run_has_ended(app: App, cluster: Cluster) -> None:
    """Two slots, two threads that ignore the request: once cancelled their runs have ended, but no other run starts until the
    threads end."""
    deaf = [await running(app, cluster, "deaf", seconds=5) for _ in range(2)]
    for job in deaf:
        await app.cancel(job.id)
    for job in deaf:
        with pytest.raises(JobFailed, match="cancelled"):
            await job.result(timeout="4s")
    assert cluster.lines("end") == []
    waiting = await app.submit("nap")
    await waiting.result(timeout="10s")
    ends = [line.at for line in cluster.lines("end") if line.job_id in {job.id for job in deaf}]
    (began,) = [line.at for line in cluster.lines("start") if line.job_id == waiting.id]
    assert ends
    assert began > min(ends), "it started in a slot that a zombie still held"
    assert [each.status for each in await app.executions(deaf[0].id)] == ["cancelled"]


async def running(app: App, cluster: Cluster, task: str, **arguments: object) -> Submitted:
    job = await app.submit(task, arguments)
    await cluster.until(lambda: has_started(cluster, job.id), "the start")
    return job


async def cancelled(app: App, job: Submitted) -> float:
    """Cancels and waits for the end. Returns how long that took."""
    began = time.monotonic()
    assert await app.cancel(job.id) == (0, 1)
    with pytest.raises(JobFailed, match="cancelled"):
        await job.result(timeout="20s")
    took_s = time.monotonic() - began
    assert [each.status for each in await app.executions(job.id)] == ["cancelled"]
    return took_s


def has_started(cluster: Cluster, job_id: UUID) -> bool:
    return any(line.job_id == job_id for line in cluster.lines("start"))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
