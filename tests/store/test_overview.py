"""The overview of the cluster: correct with few rows, bounded with many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.operations import one_time_jobs
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.fleet import workers
from sexton.store.sql import statements
from sexton.store.views import overview
from tests.callers import TESTER
from tests.store.support import BROKEN, NOW, after, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from tests.store.support import Conn


async def _busy(connection: Conn) -> None:
    """In the default queue two ready, one waiting, one paused, one running, two ended; one waiting in a queue without
    workers."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 3, now=after(seconds=-30))
    claimed = await claim(connection, worker_id, limit=3)
    await finish(connection, claimed[0].lease, Succeeded())
    await finish(connection, claimed[1].lease, BROKEN)
    await submit(connection, tenant="acme", now=after(seconds=-20))
    await submit(connection, priority="critical", now=after(seconds=-10))
    await submit(connection, delay="1h")
    await submit(connection, delay="2h", queue="mail", tenant="acme")
    async with connection.transaction():
        await one_time_jobs.pause(connection, TESTER, await submit(connection), now=NOW)


async def test_stats_count_by_kind(connection: Conn) -> None:
    """A13, E6."""
    empty = await overview.stats(connection, now=NOW)
    assert (empty.ready_count, empty.oldest_ready_s, empty.next_due_at, empty.ended_last_minute) == (0, None, None, {})
    assert (empty.worker_count, empty.node_count, empty.slot_count, empty.capped, empty.at) == (0, 0, 0, False, NOW)
    await _busy(connection)
    stats = await overview.stats(connection, now=NOW)
    assert (stats.ready_count, stats.running_count, stats.waiting_count, stats.paused_count) == (2, 1, 2, 1)
    assert (stats.oldest_ready_s, stats.next_due_at, stats.dead_letter_count) == (20.0, after(hours=1), 1)
    assert stats.worker_count == 1
    assert stats.slot_count > 0
    assert stats.ended_last_minute == {"succeeded": 1, "failed": 1}
    assert (await overview.stats(connection, now=after(minutes=2))).ended_last_minute == {}


async def test_the_oldest_ready_run_is_of_one_lane_of_all_tenants(connection: Conn) -> None:
    """E6."""
    for tenant, priority, age_s in (("a", "normal", 10), ("b", "low", 90), ("c", "normal", 30), ("d", "normal", 60)):
        await submit(connection, tenant=tenant, priority=priority, now=after(seconds=-age_s))
    await submit(connection, tenant="e", queue="mail", now=after(seconds=-120))
    oldest = "SELECT sexton.oldest_ready('default', $1::smallint, $2)"
    assert await connection.fetchval(oldest, 2, 10) == after(seconds=-60)
    assert await connection.fetchval(oldest, 3, 10) == after(seconds=-90)
    assert await connection.fetchval(oldest, 2, 2) == after(seconds=-30), "it looks at two tenants"


async def test_a_queue_is_listed_with_its_waiting_runs_and_its_workers(connection: Conn) -> None:
    """E6: also one without workers, and one without waiting runs."""
    await _busy(connection)
    await enlist(connection, queues=["idle", "default"])
    default, idle, mail = await overview.queues(connection, now=NOW)
    assert default == overview.QueueLoad("default", 2, 1, 1, 0, False, 20.0, 2)
    assert idle == overview.QueueLoad("idle", 0, 0, 0, 0, False, None, 1)
    assert mail == overview.QueueLoad("mail", 0, 0, 1, 0, False, None, 0)


async def test_tenants_are_listed_with_their_share(connection: Conn) -> None:
    """E6."""
    await _busy(connection)
    assert await overview.tenants(connection) == [
        overview.TenantLoad("acme", 1, 0, 1, 0, False),
        overview.TenantLoad("default", 1, 1, 1, 0, False),
    ]


async def test_counts_stop_at_their_limit_and_are_marked(connection: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    """E6: a long queue hides neither the others nor their tenants."""
    monkeypatch.setattr(overview, "COUNT_LIMIT", 6)
    await submit_many(connection, [submission("a", {}, queue="long", tenant="big")] * 20)
    await submit_many(connection, [submission("a", {}, queue="short", tenant="small")] * 2)
    await submit_many(connection, [submission("a", {}, delay="1h", queue="short")] * 6)
    stats = await overview.stats(connection, now=NOW)
    assert (stats.ready_count, stats.waiting_count, stats.capped) == (6, 6, True)
    queues = await overview.queues(connection, now=NOW)
    assert [(one.name, one.ready_count, one.waiting_count, one.capped) for one in queues] == [
        ("long", 6, 0, True),
        ("short", 2, 6, False),
    ]
    tenants = {one.name: (one.ready_count, one.capped) for one in await overview.tenants(connection)}
    assert tenants == {"big": (4, True), "default": (0, True), "small": (2, True)}


async def test_only_tasks_of_live_workers_are_known(connection: Conn) -> None:
    """A5: the warning about an unknown task depends on it."""
    assert await overview.known_tasks(connection, now=NOW) == set()
    await enlist(connection, tasks=["a", "b"])
    gone = await enlist(connection, tasks=["b", "c"])
    assert await overview.known_tasks(connection, now=NOW) == {"a", "b", "c"}
    await workers.declare_lost(connection, {gone: 0}, now=NOW)
    assert await overview.known_tasks(connection, now=NOW) == {"a", "b"}


@pytest.mark.made_up_rows
async def test_an_overview_costs_the_same_beside_a_backlog(database_url: str) -> None:
    """B8, E6: planned on empty tables; with 60,000 waiting runs the few ready, running and paused ones cost the same."""
    connection = await asyncpg.connect(database_url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "120s"})
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    looks: dict[str, list[Any]] = {
        "stats": ["NULL", 100, 100],
        "queues": ["NULL", 100, 200, 100],
        "tenants": [100, 100],
        "tenant": [100, "'t1'"],
    }

    async def pages(name: str) -> int:
        arguments = ", ".join(map(str, looks[name]))
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name} ({arguments})")
        plan = json.loads(text)[0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    for name in looks:
        await connection.execute(f"PREPARE {name} AS {statements('sexton.store.views.overview')[name]}")
        await pages(name)
    await connection.execute(
        """INSERT INTO sexton.runs
             (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task)
           SELECT id, id, $1::timestamptz, $1 + n * interval '1 s', 2, 0, false, 'waiting', 'now', 'q' || n % 3, 't' || n % 7,
             'a'
           FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, 60000) n) s""",
        after(days=1),
        timeout=120,
    )
    await submit_many(connection, [submission("a", {})] * 10)
    for analyzed in (False, True):
        if analyzed:
            await connection.execute("VACUUM ANALYZE sexton.runs")
            await connection.execute("DISCARD PLANS")
        for name in looks:
            assert await pages(name) < 600, (name, analyzed)
    await connection.close()
