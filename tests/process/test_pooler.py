"""Everything through PgBouncer in transaction mode with two server connections and no direct connection: slower, but with the
same results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sexton import JobFailed

from . import checker
from .apps import make
from .cluster import StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.mark.timeout(90)
async def test_submit_delay_retry_cancel_result_and_drain_behind_a_pooler(
    pooled_url: str, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    cluster = start_cluster(pooled_url)
    names = ["worker-1", "worker-2", "scheduler-1", "scheduler-2"]
    for name in names:
        (cluster.worker if name.startswith("worker") else cluster.scheduler)(name)
    await cluster.until_ready()
    assert await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sexton%'") == 0
    async with make(pooled_url) as app:
        many = await app.submit_many(app.request("nap", {"seconds": 0.01}) for _ in range(500))
        delayed = await app.submit("nap", {"seconds": 0.25}, delay="1s")
        retried = await app.submit("flaky")
        endless = await app.submit("nap", {"seconds": 60})
        assert await delayed.result(timeout="15s") == 0.25
        assert await retried.result(timeout="15s") == 2
        await asyncio.gather(*(job.result(timeout="30s") for job in many[-20:]))

        await cluster.until(lambda: any(line.job_id == endless.id for line in cluster.lines("start")), "the endless to start")
        await app.cancel(endless.id)
        with pytest.raises(JobFailed, match="cancelled"):
            await endless.result(timeout="10s")

        others = len(many) + len([delayed, retried, endless])
        all_ended = "SELECT count(*) = $1 FROM sexton.endings"
        await cluster.until(lambda: connection.fetchval(all_ended, others), "all others to end")  # so that none is handed back
        last = await app.submit("nap", {"seconds": 1})
        await cluster.until(lambda: any(line.job_id == last.id for line in cluster.lines("start")), "the last to start")
        for name in names:
            cluster.terminate(name)
        for name in names:
            assert await cluster.exit_code(name, within_s=15) == 0
        assert await last.result(timeout="1s") == 1
        done = [job.id for job in (*many, delayed, retried, last)]
        found = await checker.check(connection, cluster.journal_directory, done)
    figure(f"behind a pooler: {found}")
    assert found.all_completed, f"{found}\n{cluster.logs()}"
    assert found.repeated_because == {"failed": 1}
    assert await connection.fetchval("SELECT count(*) FROM sexton.workers") == 0
    assert await connection.fetchval("SELECT count(*) FROM sexton.nodes") == 0
    for name in names:
        log = cluster[name].log
        assert "Traceback" not in log, log
        assert "database lost" not in log, log
