"""The facts behind `sexton doctor`, on a server in which they can be produced."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sexton.operations.recurring import recurring_jobs
from sexton.store.database import Postgres
from sexton.store.fleet import workers
from sexton.store.views import diagnosis
from sexton.store.work import retention
from tests.callers import TESTER
from tests.store.support import NOW, after, enlist, submit

if TYPE_CHECKING:
    from tests.store.support import Conn


async def test_a_transaction_left_open_is_named(connection: Conn, rival: Conn) -> None:
    """E7: with the process that holds it, even if it is idle."""
    await rival.execute("SET application_name = 'forgotten'")
    await rival.execute("BEGIN")
    begun_at = await rival.fetchval("SELECT transaction_timestamp()")
    assert (await diagnosis.server(connection, now=begun_at + timedelta(seconds=59))).transactions == []
    facts = await diagnosis.server(connection, now=begun_at + timedelta(seconds=90))
    mine = [found for found in facts.transactions if found.application == "forgotten"]
    assert [(found.state, round(found.age_s)) for found in mine] == [("idle in transaction", 90)]
    assert mine[0].pid == await rival.fetchval("SELECT pg_backend_pid()")
    await rival.execute("ROLLBACK")


async def test_the_settings_are_those_of_this_database(connection: Conn, database_url: str) -> None:
    """E7: settings of the role and of the database count, not the server's file."""
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    database = await Postgres.open(database_url, writable=False)
    async with database.connection() as fresh:
        facts = await diagnosis.server(fresh)
    await database.close()
    assert facts.settings["default_transaction_read_only"] == "on"
    assert facts.version >= 150000
    assert not facts.is_replica
    assert facts.connection_count >= 2


@pytest.mark.made_up_rows
async def test_the_schema_shows_processes_and_waiting_runs(connection: Conn) -> None:
    """E7."""
    await enlist(connection, queues=["a", "b"])
    await enlist(connection, queues=["b"], now=after(seconds=20))
    lost = await enlist(connection, queues=["c"], now=after(seconds=20))
    await connection.execute("UPDATE sexton.workers SET lost_at = $2 WHERE id = $1", lost, NOW)
    await workers.node_beat(connection, uuid4(), name="n", partitions=[1], now=after(seconds=25))
    for queue in ("b", "d", "d", "b", "a"):
        await submit(connection, queue=queue)
    await submit(connection, queue="later", delay="1h")
    facts = await diagnosis.schema(connection, now=after(seconds=30))
    assert facts.ready_queues == ["a", "b", "d"]
    assert sorted((one.silent_s, one.queues, one.is_alive) for one in facts.workers) == [
        (10.0, ["b"], True),
        (30.0, ["a", "b"], False),
    ]
    assert [(one.silent_s, one.is_alive) for one in facts.nodes] == [(5.0, True)]
    assert not facts.is_foreign


async def test_partitions_are_counted_in_days_from_the_moment(connection: Conn) -> None:
    """E7, rule "lock in id order"."""
    await retention.make_partitions(connection)  # a test's database begins with those of today only
    last = await connection.fetchval("SELECT date_trunc('day', clock_timestamp(), 'UTC') + interval '16 days'")
    facts = await diagnosis.schema(connection, now=last - timedelta(days=5))
    assert facts.days_ahead["executions"] == pytest.approx(5.0, abs=1.01)
    assert facts.days_ahead["jobs"] >= facts.days_ahead["executions"]
    assert {"jobs", "executions", "endings"} <= set(facts.days_ahead)
    behind = await diagnosis.schema(connection, now=last + timedelta(days=3))
    assert behind.days_ahead["executions"] < 0


async def test_a_table_that_is_never_vacuumed_and_a_copy_are_reported(connection: Conn) -> None:
    """E7, rule "a clone does not fire"."""
    await connection.execute("ALTER TABLE sexton.jobs_recurring SET (autovacuum_enabled = off)")
    await connection.execute("UPDATE sexton.cluster SET system_identifier = system_identifier + 1")
    facts = await diagnosis.schema(connection)
    assert [table.name for table in facts.tables if table.is_never_vacuumed] == ["jobs_recurring"]
    assert facts.is_foreign


async def test_a_missing_schema_is_reported(empty_database_url: str, database: Postgres) -> None:
    """E7."""
    empty = await Postgres.open(empty_database_url)
    assert "sexton migrate" in str(await diagnosis.schema_fault(empty))
    await empty.close()
    assert await diagnosis.schema_fault(database) is None


async def test_a_notification_arrives_on_a_direct_connection(database_url: str) -> None:
    """E7, rule "session state only on direct connections"."""
    assert await diagnosis.hears(database_url)


async def test_rows_locked_by_a_long_transaction_are_named_without_waiting_for_them(connection: Conn, rival: Conn) -> None:
    """E7, rule "never wait inside a batch": also rows that are due later."""
    async with connection.transaction():
        (job,) = await recurring_jobs.submit(connection, TESTER, [{"task": "a", "schedule": {"every": "1h"}}])
    async with rival.transaction():
        await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
        begun_at = await rival.fetchval("SELECT transaction_timestamp()")
        assert (await diagnosis.schema(connection, now=begun_at + timedelta(seconds=9))).locked == []
        (row,) = (await diagnosis.schema(connection, now=begun_at + timedelta(seconds=11))).locked
        assert (row.kind, row.job_id, row.holder.pid) == ("schedule", job.id, rival.get_server_pid())
