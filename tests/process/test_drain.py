"""SIGTERM: the worker claims no more runs, finishes what can finish, and hands back the rest, which spends no attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]


async def test_a_draining_worker_finishes_what_is_short_and_hands_back_what_is_long(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    cluster = start_cluster(worker_drain_s=2, worker_grace_s=2)
    cluster.worker("leaving")
    await cluster.until_ready()
    short = [await app.submit("nap", {"seconds": 1.0}) for _ in range(5)]
    long = [await app.submit(task, {"seconds": 30}) for task in ("nap", "deaf", "child")] + [await app.submit("polite")]
    await cluster.until(lambda: len(cluster.lines("start")) == 9, "the starts")

    cluster.terminate("leaving")
    await cluster.until(lambda: is_draining(connection), "the drain to be seen in the fleet")
    too_late = await app.submit("nap")
    assert await cluster.exit_code("leaving", within_s=10) == 0
    for job in short:
        assert [each.status for each in await app.executions(job.id)] == ["succeeded"]
    for job in long:
        assert [(each.status, each.attempt) for each in await app.executions(job.id)] == [("released", 1)], job
        assert (await app.job(job.id)).status == "pending"
        assert (await app.job(job.id)).attempt == 0, "a hand-back spends nothing"
    assert await app.executions(too_late.id) == []
    assert await connection.fetchval("SELECT count(*) FROM sexton.workers") == 0
    assert "Traceback" not in cluster["leaving"].log, cluster["leaving"].log


async def test_a_second_signal_ends_a_worker_at_once_and_its_runs_are_recovered(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    cluster = start_cluster(**SHORT)
    cluster.worker("leaving")
    cluster.scheduler("scheduler")
    await cluster.until_ready()
    job = await app.submit("nap", {"seconds": 5})
    await cluster.until(lambda: cluster.lines("start"), "the start")
    cluster.worker("heir")
    await cluster.until_ready("heir")

    cluster.terminate("leaving")
    await cluster.until(lambda: is_draining(connection), "the drain to begin")
    cluster.terminate("leaving")
    assert await cluster.exit_code("leaving") == 1, "a drain that was waited for ends with 0"
    assert await job.result(timeout="20s") == 5
    assert [each.status for each in await app.executions(job.id)] == ["lost", "succeeded"]


async def test_an_idle_worker_and_a_scheduler_leave_at_once(connection: Conn, start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.worker("worker")
    cluster.scheduler("scheduler-1")
    cluster.scheduler("scheduler-2")
    await cluster.until_ready()
    for name in ("scheduler-1", "worker"):
        cluster.terminate(name)
        assert await cluster.exit_code(name) == 0
        assert "Traceback" not in cluster[name].log, cluster[name].log
    assert await connection.fetchval("SELECT count(*) FROM sexton.workers") == 0
    assert await connection.fetchval("SELECT count(*) FROM sexton.nodes") == 1
    # The remaining schedulers soon lead its shards.
    await cluster.until(lambda: leads_all(connection), "the other to lead everything")


async def is_draining(connection: Conn) -> bool:
    count: int = await connection.fetchval("SELECT count(*) FROM sexton.workers WHERE draining")
    return count == 1


async def leads_all(connection: Conn) -> bool:
    count: int | None = await connection.fetchval("SELECT cardinality(partitions) FROM sexton.nodes")
    return count == 64
