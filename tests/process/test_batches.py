"""C17: a batch task with real workers, one of which is killed in the middle of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexton import Retry

from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

APP = "tests.process.batch_app:app"
COUNT = 32


async def test_a_killed_worker_and_a_bad_run_cost_the_others_no_attempt(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    """Rules "a failed call is halved" and "suspects apart"."""
    cluster = start_cluster(**SHORT)
    jobs = await app.submit_many([app.request("store", {"n": n, "bad": n == 7}, retry=Retry.never()) for n in range(COUNT)])
    cluster.worker("killed", app=APP)
    cluster.scheduler("scheduler")

    async def has_begun() -> bool:
        return int(await connection.fetchval("SELECT count(*) FROM sexton.runs WHERE state = 'running'")) == 16

    await cluster.until(has_begun, "the first call to begin")
    cluster.kill("killed")
    cluster.worker("heir", app=APP)

    async def is_done() -> bool:
        return not await connection.fetchval("SELECT count(*) FROM sexton.runs")

    await cluster.until(is_done, "all runs to end")
    for n, job in enumerate(jobs):
        tries = await app.executions(job.id)
        assert (tries[-1].status, tries[-1].attempt) == ("failed" if n == 7 else "succeeded", 1)
        assert [each.status for each in tries].count("failed") == (n == 7)
    assert [(await app.executions(job.id))[0].status for job in jobs].count("lost") == 16
