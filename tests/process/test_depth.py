"""Many waiting runs increase neither memory nor the time of a claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.sizes import size

from .cluster import StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from sexton import App

    Conn = asyncpg.Connection[asyncpg.Record]

WAITING = size("WAITING", 200_000)
JOBS = 2_000
MIB = 2**20
WORKER_MIB, SCHEDULER_MIB = 120, 100  # the targets of docs/performance.md, at ten million waiting runs
GROWTH_MIB = 24

_FILL = """
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, timeout_s, lane, partition, at_most_once, state, origin, queue, tenant,
                         task)
SELECT id, id, due_at, due_at, 30, 2, sexton.partition_of(id), false, 'waiting', 'now', 'default', 'default', 'nap'
FROM (SELECT sexton.uuid7((extract(epoch FROM now()) * 1000000)::bigint + n) AS id,
        now() + interval '1 day' + n * interval '1 ms' AS due_at
      FROM generate_series(1, $1::int) AS n) AS filled
"""


@pytest.fixture
def fork_server() -> None:
    """Members are started by exec: a forked member would have all modules of the product in its memory."""


@pytest.mark.timeout(60 + WAITING / 5_000)
async def test_memory_and_speed_beside_many_waiting_runs(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    await connection.execute(_FILL, WAITING)
    cluster = start_cluster()
    worker, scheduler = cluster.worker("worker"), cluster.scheduler("scheduler")
    await cluster.until_ready()
    before = rss_mib(worker.pid), rss_mib(scheduler.pid)

    due_at = datetime.now(UTC) + timedelta(seconds=1)
    await app.submit_many(app.request("nap", run_at=due_at) for _ in range(JOBS))
    await cluster.until(lambda: all_ended(connection), "all to end", within_s=20)
    lag_s: float = await connection.fetchval(
        "SELECT extract(epoch FROM max(started_at - due_at))::float8 FROM sexton.executions"
    )
    after = rss_mib(worker.pid), rss_mib(scheduler.pid)
    figure(
        f"beside {WAITING} waiting runs: {JOBS} due at one instant, the last started after {lag_s:.2f} s; "
        f"worker {before[0]:.0f} -> {after[0]:.0f} MiB, scheduler {before[1]:.0f} -> {after[1]:.0f} MiB"
    )
    assert await connection.fetchval("SELECT count(*) FROM sexton.runs") == WAITING
    assert lag_s < 15, "on two busy cores; a system that looks at all that waits takes minutes"
    assert after[0] < WORKER_MIB
    assert after[1] < SCHEDULER_MIB
    assert max(after[0] - before[0], after[1] - before[1]) < GROWTH_MIB


def rss_mib(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / MIB


async def all_ended(connection: Conn) -> bool:
    ended: int = await connection.fetchval("SELECT count(*) FROM sexton.endings")
    return ended == JOBS
