"""The session of a worker ends. If the worker was killed, its runs start elsewhere long before its lease is over. If an
administrator or a restart ended it, the worker is not declared dead. All at default settings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster as home

from .apps import make
from .cluster import Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from sexton import App
    from tests.conftest import StartServer

    Conn = asyncpg.Connection[asyncpg.Record]

pytestmark = pytest.mark.timeout(120)

LEASE_S = Settings().lease_s
LONG_S = 60.0
COUNT = 10
SOON_S = 4.0  # 2 s are promised; the lease alone takes 4.5 s and more


async def test_the_runs_of_a_killed_worker_start_elsewhere_long_before_its_lease_is_over(
    app: App, connection: Conn, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    cluster = await two_workers(start_cluster(), app, connection)
    doomed = next(name for name in ("first", "second") if cluster[name].pid in running_pids(cluster))
    killed_at = await connection.fetchval("SELECT clock_timestamp()")
    cluster.kill(doomed)
    await cluster.until(lambda: len(cluster.lines("start")) == 2 * COUNT, "all to run elsewhere")
    row = await connection.fetchrow(
        """SELECT extract(epoch FROM max(r.claimed_at) - $1)::float8, max(w.lost_reason)
           FROM sexton.runs r, sexton.workers w WHERE w.lost_at IS NOT NULL""",
        killed_at,
    )
    assert row is not None
    took_s, reason = row
    figure(f"recovery: {COUNT} runs of a killed worker claimed elsewhere after {took_s:.2f} s")
    assert reason == "its sessions ended"
    assert "its sessions ended" in cluster["scheduler"].log
    assert took_s < SOON_S


async def test_a_worker_whose_sessions_an_administrator_ends_is_not_dead(
    app: App, connection: Conn, start_cluster: StartCluster
) -> None:
    cluster = await two_workers(start_cluster(), app, connection)
    before = await sessions(connection)
    await connection.execute(
        """SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
           WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.pid NOT IN (
             SELECT pid FROM pg_stat_activity WHERE application_name = 'sexton leadership')
           AND a.pid = ANY (SELECT split_part(session, '/', 1)::int FROM sexton.workers)"""
    )
    await cluster.until(lambda: renewed(connection, before), "both to have announced new sessions")
    await asyncio.sleep(0)
    await no_worker_was_lost(cluster, connection)


async def test_a_restart_of_the_server_kills_no_worker(own_postgres_server: StartServer, start_cluster: StartCluster) -> None:
    server = own_postgres_server()
    database = await Postgres.open(server.url())
    await migrations.migrate(database)
    await home.require_home(database)
    await database.close()
    connection = await asyncpg.connect(server.url())
    async with make(server.url()) as app:
        cluster = await two_workers(start_cluster(server.url()), app, connection)
        before = await sessions(connection)
        await connection.close()
        await asyncio.to_thread(server.restart)
    connection = await asyncpg.connect(server.url())
    try:
        await cluster.until(lambda: renewed(connection, before), "both to have announced new sessions")
        await no_worker_was_lost(cluster, connection)
    finally:
        await connection.close()


async def two_workers(cluster: Cluster, app: App, connection: Conn) -> Cluster:
    """One of them executes all runs."""
    cluster.scheduler("scheduler")
    cluster.worker("first", worker_concurrency=COUNT)
    await cluster.until_ready()
    await app.submit_many([app.request("nap", {"seconds": LONG_S}) for _ in range(COUNT)])
    await cluster.until(lambda: len(cluster.lines("start")) == COUNT, "all to start")
    cluster.worker("second", worker_concurrency=COUNT)
    await cluster.until_ready()
    await cluster.until(lambda: sessions(connection, 2), "both to announce their sessions")
    beats = await connection.fetchval("SELECT sum(beat) FROM sexton.workers")
    await cluster.until(lambda: has_beaten(connection, beats + 3), "the sweeper to have seen them")
    return cluster


def running_pids(cluster: Cluster) -> set[int]:
    return {line.pid for line in cluster.lines("start")}


async def sessions(connection: Conn, at_least: int = 0) -> set[str]:
    rows = await connection.fetch("SELECT session FROM sexton.workers WHERE lost_at IS NULL AND session IS NOT NULL")
    return {row["session"] for row in rows} if len(rows) >= at_least else set()


async def has_beaten(connection: Conn, count: int) -> bool:
    beaten: int = await connection.fetchval("SELECT sum(beat) FROM sexton.workers")
    return beaten >= count


async def renewed(connection: Conn, before: set[str]) -> bool:
    now = await sessions(connection, 2)
    return bool(now) and not now & before


async def no_worker_was_lost(cluster: Cluster, connection: Conn) -> None:
    """Not even a lease later."""
    beats = await connection.fetchval("SELECT sum(beat) FROM sexton.workers")
    await cluster.until(lambda: has_beaten(connection, beats + 2 * int(LEASE_S)), "a lease to pass")
    assert await connection.fetchval("SELECT count(*) FROM sexton.workers WHERE lost_at IS NOT NULL") == 0
    assert "lost" not in cluster["scheduler"].log.replace("database lost", "")
