"""A row that is locked for long is logged as a warning with the row and the session; other rows are not."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg
import pytest

from sexton.domain import partition
from sexton.scheduler.lock_watcher import LONG_S, REMIND_S, REST_S, LockWatcher
from sexton.store.database import Database, Postgres
from sexton.store.views import locked_rows
from sexton.telemetry.events import RowLocked, TableLocked
from tests.rig import LONG_S as GIVE_UP_S
from tests.rig import Between, Rig
from tests.timetable import Timetable

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def rival(database_url: str) -> AsyncIterator[Conn]:
    """A session whose transaction is left open."""
    connection = await asyncpg.connect(database_url, server_settings={"application_name": "billing"})
    await connection.execute("BEGIN")
    yield connection
    await connection.close()


def watcher(rig: Rig, database: Database | None = None, led: Any = partition.ALL) -> LockWatcher:
    return LockWatcher(database or rig.database, lambda: led, clock=rig.clock, emit=rig.heard)


async def watch(rig: Rig, one: LockWatcher, span_s: float) -> list[RowLocked]:
    """The warnings that it logs in that time."""
    before = len(rig.of(RowLocked))
    for _ in range(int(span_s / REST_S)):
        await one.run_once()
        rig.move(REST_S)
    return rig.of(RowLocked)[before:]


async def overdue(rig: Rig, count: int = 1) -> list[UUID]:
    """Schedules that a planner would plan now."""
    table = Timetable(rig)
    ids = [await table.write(name=f"n{n}") for n in range(count)]
    rig.move(15 * 60)
    return ids


async def test_a_schedule_is_named_with_its_session_once_in_thirty_seconds(rig: Rig, rival: Conn) -> None:
    """C19."""
    (job_id,) = await overdue(rig)
    one = watcher(rig)
    await rival.execute("SELECT sexton.submit_schedule('a', name => 'n0', every => '20 seconds')")
    assert await watch(rig, one, LONG_S) == []
    told, of_run = await watch(rig, one, REMIND_S)
    pid = rival.get_server_pid()
    assert (told.row, told.job_id, told.run_id) == (f"schedule 'n0' ({job_id})", job_id, None)
    assert (of_run.job_id, of_run.session) == (job_id, told.session), "the edit takes back the fire that is due"
    assert told.session.startswith(f"session {pid} (billing, user ")
    assert f"pg_terminate_backend({pid})" in told.advice
    assert LONG_S <= told.locked_s < LONG_S + 2 * REST_S
    assert told.transaction_s is not None
    assert len(await watch(rig, one, 2 * REMIND_S)) == 2 * 2
    await rival.execute("ROLLBACK")
    assert await watch(rig, one, 2 * REMIND_S) == []


async def test_a_row_is_named_fifteen_seconds_after_it_was_locked_at_the_latest(rig: Rig, rival: Conn) -> None:
    """Whether its transaction is new or has been open for long."""
    await overdue(rig)
    one = watcher(rig)
    for begins in ("SELECT 1", "CREATE TEMP TABLE t (n int)"):
        await rival.execute(begins)
        await watch(rig, one, 3 * REST_S)
        await one.run_once()
        await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")  # just after a look
        locked_s = 0.0
        while not (told := rig.of(RowLocked)):
            rig.move(REST_S)
            locked_s += REST_S
            await one.run_once()
        assert LONG_S <= locked_s <= LONG_S + REST_S
        assert told[0].locked_s <= locked_s
        await rival.execute("ROLLBACK; BEGIN")
        await one.run_once()
        rig.events.clear()


async def test_a_locked_row_of_the_locks_is_named(rig: Rig, rival: Conn) -> None:
    """C19: no promoter decides about the schedules of that partition. `sexton why` names it too."""
    (job_id,) = await overdue(rig)
    place = partition.of(job_id)
    await rival.execute(f"SELECT FROM sexton.locks WHERE what = 'promote' AND n = {place} FOR UPDATE")
    (told,) = await watch(rig, watcher(rig), LONG_S + 2 * REST_S)
    assert told.row == f"the lock of partition {place}"
    assert told.session.startswith(f"session {rival.get_server_pid()} ")
    async with rig.database.connection() as connection:
        (row,) = await locked_rows.of_job(connection, job_id, queue="default", limit_key=None)
    assert (row.words, row.holder.pid) == (told.row, rival.get_server_pid())


async def test_while_no_transaction_lasts_a_pass_is_two_statements(rig: Rig) -> None:
    """B10: rows, and tables."""
    between = Between(rig.database)
    await watch(rig, watcher(rig, between), 3 * REST_S)
    assert len(between.statements) == 3 * 2


async def test_a_run_in_any_state_and_its_limit_are_named(rig: Rig, rival: Conn) -> None:
    waiting, ready = await rig.submit(delay=1), await rig.submit()
    parked = await rig.submit(limit={"key": "stripe", "running": 1})
    rig.move(5)
    await rival.execute("SELECT FROM sexton.runs FOR UPDATE")
    await rival.execute("SELECT FROM sexton.limits FOR UPDATE")
    told = await watch(rig, watcher(rig), LONG_S + 2 * REST_S)
    of_run, of_limit = sorted(told, key=lambda event: event.job_id is None)
    assert of_run.job_id in {waiting, ready, parked}
    assert of_run.more_count == 2
    assert (of_limit.row, of_limit.more_count) == ("limit 'stripe'", 0)


async def test_rows_that_are_not_due_and_transactions_that_end_are_not_reported(rig: Rig, rival: Conn) -> None:
    table = Timetable(rig)
    await table.write()
    one = watcher(rig)
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    assert await watch(rig, one, 60) == []
    rig.move(15 * 60)
    for _ in range(6):  # each session holds it for less than two looks
        await watch(rig, one, REST_S)
        await rival.execute("ROLLBACK; BEGIN")
        await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    assert rig.of(RowLocked) == []


async def test_a_savepoint_and_a_second_locker_do_not_hide_the_session(rig: Rig, rival: Conn, connection: Conn) -> None:
    """The row then has a multixact and not a transaction id."""
    await overdue(rig)
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    await rival.execute("SAVEPOINT s")
    await rival.execute("UPDATE sexton.jobs_recurring SET note = 'x'")
    (told,) = await watch(rig, watcher(rig), LONG_S + 2 * REST_S)
    assert f"session {rival.get_server_pid()} " in told.session
    await rival.execute("ROLLBACK; BEGIN")
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR SHARE")
    async with connection.transaction():
        await connection.execute("SELECT FROM sexton.jobs_recurring FOR SHARE")
        (told,) = await watch(rig, watcher(rig), LONG_S + 2 * REST_S)
    pids = {rival.get_server_pid(), connection.get_server_pid()}
    assert any(told.session.startswith(f"session {pid} ") for pid in pids)


async def test_a_transaction_that_locks_many_rows_is_one_line(rig: Rig, rival: Conn) -> None:
    await overdue(rig, 12)
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    (told,) = await watch(rig, watcher(rig), LONG_S + 2 * REST_S)
    assert told.more_count == 12 - 1


async def test_an_idle_session_is_a_line_in_thirty_seconds_however_many_runs_come(rig: Rig, rival: Conn) -> None:
    """Each run that is planned meanwhile and locked by it becomes late at another time."""
    one, told = watcher(rig), []
    first = await rig.submit()
    for _ in range(20):
        await rival.execute("SELECT FROM sexton.runs FOR UPDATE")
        told += await watch(rig, one, 3 * REST_S)
        await rig.submit()
    assert len(told) in (9, 10), "five minutes, from the first time that one was long"
    assert {event.job_id for event in told} == {first}, "the one that has been locked for longest"
    assert [event.more_count for event in told] == sorted(event.more_count for event in told)
    assert told[-1].more_count > 12


async def test_one_node_reports_each_row(rig: Rig, rival: Conn) -> None:
    ids = await overdue(rig, 4)
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    of_one = {partition.of(ids[0])}
    halves = [watcher(rig, led=of_one), watcher(rig, led=set(partition.ALL) - of_one)]
    told = [await watch(rig, half, LONG_S + 2 * REST_S) for half in halves]
    assert [sum(1 + event.more_count for event in half) for half in told] == [
        sum(partition.of(job_id) in led for job_id in ids) for led in (of_one, set(partition.ALL) - of_one)
    ]
    assert all(partition.of(event.job_id) in of_one for event in told[0])


@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])
async def test_a_locked_table_is_named_with_its_session_once_in_thirty_seconds(rig: Rig, rival: Conn, mode: str) -> None:
    """C19: by every node, also by one that can read no table, and leads no partition."""
    await overdue(rig)
    one, pid = watcher(rig, led=()), rival.get_server_pid()
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    await watch(rig, one, REST_S)
    await rival.execute(f"LOCK TABLE sexton.runs IN {mode} MODE")
    await watch(rig, one, REST_S)
    assert rig.of(TableLocked) == [], "a migration holds a table for a moment"
    async with asyncio.timeout(GIVE_UP_S):
        await watch(rig, one, 2 * REMIND_S)
    told, again = rig.of(TableLocked)
    assert told.table == f"sexton.runs in {mode} mode"
    assert told.session.startswith(f"session {pid} (billing, user ")
    assert f"pg_terminate_backend({pid})" in told.advice
    assert REST_S <= told.locked_s <= again.locked_s - REMIND_S
    await rival.execute("ROLLBACK")
    await watch(rig, one, 2 * REMIND_S)
    assert len(rig.of(TableLocked)) == 2


async def test_a_role_with_fewer_rights_sees_less_and_does_not_fail(
    rig: Rig, rival: Conn, connection: Conn, database_url: str
) -> None:
    """E7: it still sees which session it is."""
    await overdue(rig)
    role = f"watcher_{secrets.token_hex(4)}"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    await connection.execute(f"GRANT USAGE ON SCHEMA sexton TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA sexton TO {role}")
    await connection.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO {role}")
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    parts = urlsplit(database_url)
    address = parts.netloc.rpartition("@")[2]
    database = await Postgres.open(urlunsplit(parts._replace(netloc=f"{role}:x@{address}")))
    try:
        (told,) = await watch(rig, watcher(rig, database), LONG_S + 2 * REST_S)
    finally:
        await database.close()
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert told.session.startswith(f"session {rival.get_server_pid()} (billing")
    assert told.transaction_s is None


async def test_looking_takes_no_lock(rig: Rig, rival: Conn) -> None:
    (job_id,) = await overdue(rig)
    await rival.execute("LOCK TABLE sexton.queues IN ROW EXCLUSIVE MODE")
    await rival.execute("SELECT FROM sexton.jobs_recurring FOR UPDATE")
    async with rig.database.transaction() as connection:
        holders = await locked_rows.holders(connection)
        await locked_rows.due(connection, holders, until=rig.clock.database_now())
        await locked_rows.of_job(connection, job_id, queue="default", limit_key="x")
        (row,) = await connection.fetch("SELECT pg_current_xact_id_if_assigned() AS xid")
        assert row["xid"] is None
    await asyncio.sleep(0)
