"""PostgreSQL is away under load: services reconnect by themselves, no job is lost, and no worker is declared dead."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

import asyncpg
import pytest

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster as home
from tests.sizes import size

from . import checker
from .apps import make
from .cluster import SHORT, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import StartServer

OUTAGE_S = size("OUTAGE_S", 7)
JOBS = size("OUTAGE_JOBS", 1_000)
LONG_S = OUTAGE_S + 4.0  # still running when the server is back
LINES_PER_OUTAGE = 6  # of "database lost", in one process: one line for each of its services


@pytest.mark.timeout(90 + 2 * OUTAGE_S)
async def test_a_restart_and_an_outage_longer_than_the_lease_cost_nothing(
    own_postgres_server: StartServer, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    assert 2 * SHORT["lease_s"] < OUTAGE_S
    server = own_postgres_server()
    database = await Postgres.open(server.url())
    await migrations.migrate(database)
    await home.require_home(database)
    await database.close()
    cluster = start_cluster(server.url(), **SHORT)
    names = ["worker-1", "worker-2", "scheduler-1", "scheduler-2"]
    for name in names:
        (cluster.worker if name.startswith("worker") else cluster.scheduler)(name)
    await cluster.until_ready()
    rng, now = Random(3), datetime.now(UTC)
    async with make(server.url()) as app:
        requests = [app.request("nap", {"seconds": LONG_S}) for _ in range(20)]
        requests += [
            app.request("nap", {"seconds": rng.uniform(0, 1)}, run_at=now + timedelta(seconds=rng.uniform(0, OUTAGE_S + 8)))
            for _ in range(JOBS)
        ]
        submitted = await app.submit_many(requests)
    await cluster.until(lambda: len(cluster.lines("start")) > 30, "the load to begin")

    await asyncio.to_thread(server.restart)
    started = len(cluster.lines("start"))
    await cluster.until(lambda: len(cluster.lines("start")) > started, "work to go on after the restart")
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(OUTAGE_S)  # only the duration of the outage depends on the clock
    started = len(cluster.lines("start"))
    await asyncio.to_thread(server.restart)
    back_s = await cluster.until(lambda: len(cluster.lines("start")) > started, "work to go on after the outage")

    connection = await asyncpg.connect(server.url())
    try:
        await cluster.until(lambda: all_ended(connection, len(submitted)), "all jobs to end", within_s=LONG_S + 40)
        found = await checker.check(connection, cluster.journal_directory, [job.id for job in submitted])
    finally:
        await connection.close()
    logs = {name: cluster[name].log for name in names}
    lost_lines = {name: log.count("database lost") for name, log in logs.items()}
    figure(f"outage of {OUTAGE_S} s: work again {back_s:.2f} s after the server was back; lines of loss {lost_lines}; {found}")
    assert found.all_completed, f"{found}\n{cluster.logs()}"
    assert found.repeated_because["lost"] == 0
    for name, log in logs.items():
        assert "Traceback" not in log, log
        assert "worker lost" not in log, log
        assert "declared lost" not in log, log
        assert cluster[name].process.poll() is None, f"{name} has ended\n{log}"
        assert 0 < log.count("database lost") <= 2 * LINES_PER_OUTAGE, log
        assert log.count("database back") == log.count("database lost"), log


async def all_ended(connection: asyncpg.Connection[asyncpg.Record], count: int) -> bool:
    ended: int = await connection.fetchval("SELECT count(*) FROM sexton.endings")
    return ended == count
