"""C19: a session that has locked a table of Sexton is named, by statements that need no table of Sexton."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sexton.cli.doctor import checks
from sexton.cli.doctor import command as doctor
from sexton.errors import Contention
from sexton.operations.explain import explain
from sexton.settings import Settings
from sexton.store.database import APPLICATION_NAMES, LockTimeouts, Postgres
from sexton.store.views import locked_tables
from sexton.store.views.locked_rows import Holder
from sexton.store.views.locked_tables import LockedTables
from tests.callers import TESTER

from .support import blocked_task

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

STOPS = {"ACCESS EXCLUSIVE": True, "EXCLUSIVE": False, "SHARE ROW EXCLUSIVE": False, "SHARE": False}
HARMLESS = ["SHARE UPDATE EXCLUSIVE", "ROW EXCLUSIVE", "ROW SHARE", "ACCESS SHARE"]


@pytest.fixture
async def rival(database_url: str) -> AsyncIterator[Conn]:
    """A session whose transaction is left open."""
    connection = await asyncpg.connect(database_url, server_settings={"application_name": "billing"})
    await connection.execute("BEGIN")
    yield connection
    await connection.close()


@pytest.fixture
async def ours(database_url: str) -> AsyncIterator[Conn]:
    """A session of a service."""
    connection = await asyncpg.connect(database_url, server_settings={"application_name": "sexton"})
    yield connection
    await connection.close()


@pytest.mark.parametrize("mode", STOPS)
async def test_a_lock_that_conflicts_with_the_services_is_named(connection: Conn, rival: Conn, mode: str) -> None:
    await rival.execute(f"LOCK TABLE sexton.runs, sexton.executions IN {mode} MODE")
    (one, *_), pid = await locked_tables.look(connection), rival.get_server_pid()
    assert (one.holder.pid, one.mode_words, one.stops_reading) == (pid, mode, STOPS[mode])
    assert one.holder.words.startswith(f"session {pid} (billing, user ")
    assert {"runs", "executions"} <= set(one.names)
    assert f"pg_terminate_backend({pid})" in one.advice
    assert not one.is_lasting


@pytest.mark.parametrize("mode", HARMLESS)
async def test_a_lock_that_stops_no_service_is_not_named(connection: Conn, rival: Conn, mode: str) -> None:
    await rival.execute(f"LOCK TABLE sexton.runs IN {mode} MODE")
    await rival.execute("CREATE TABLE public.mine (n int); LOCK TABLE public.mine")
    assert await locked_tables.look(connection) == []


def test_a_prepared_transaction_is_named() -> None:
    one = LockedTables(Holder("-1/7", None, "two-phase", None, "ada", None, 9.0), ["runs"], "ShareLock", False)
    assert one.said == "the prepared transaction 'two-phase' has locked sexton.runs in SHARE mode for up to 9 s"
    assert "ROLLBACK PREPARED 'two-phase'" in one.advice


@pytest.mark.parametrize("name", APPLICATION_NAMES)
async def test_no_session_of_sexton_is_named(database_url: str, connection: Conn, name: str) -> None:
    """A migration, or the end of an old partition."""
    own = await asyncpg.connect(database_url, server_settings={"application_name": name})
    try:
        await own.execute("BEGIN; LOCK TABLE sexton.runs")
        assert await locked_tables.look(connection) == []
    finally:
        await own.close()


async def test_the_session_at_the_end_of_a_queue_is_named(connection: Conn, rival: Conn, ours: Conn, database_url: str) -> None:
    """A reader with a harmless lock holds up DDL, and the services queue behind the DDL."""
    await rival.execute("SELECT FROM sexton.limits")
    ddl = await asyncpg.connect(database_url, server_settings={"application_name": "ddl"})
    try:
        changes = await blocked_task(rival, ddl, ddl.execute("BEGIN; LOCK TABLE sexton.limits; COMMIT"))
        waits = await blocked_task(connection, ours, ours.execute("SELECT FROM sexton.limits"))
        (one,) = await locked_tables.look(connection)
        assert (one.holder.pid, one.names, one.stops_reading) == (rival.get_server_pid(), ["limits"], True)
        await rival.execute("ROLLBACK")
        await asyncio.gather(changes, waits)
    finally:
        await ddl.close()
    assert await locked_tables.look(connection) == []


async def test_a_service_that_waits_for_the_table_is_not_named(connection: Conn, rival: Conn, ours: Conn) -> None:
    """It holds rows, and a lock on another table, while it waits."""
    await rival.execute("LOCK TABLE sexton.executions IN SHARE MODE")
    await ours.execute("BEGIN; LOCK TABLE sexton.limits")
    waits = await blocked_task(rival, ours, ours.execute("DELETE FROM sexton.executions"))
    assert [one.holder.pid for one in await locked_tables.look(connection)] == [rival.get_server_pid()]
    await rival.execute("ROLLBACK")
    await waits


async def _facts(database_url: str) -> checks.Facts:
    database = await Postgres.open(database_url, timeouts=LockTimeouts(doctor.LOCK_TIMEOUT_S))
    try:
        return await doctor.facts_of(database, Settings())
    finally:
        await database.close()


@pytest.mark.parametrize("table", ["runs", "jobs_recurring", "nodes", "cluster", "schema_functions"])
async def test_doctor_names_a_session_that_has_locked_it_out(
    database_url: str, connection: Conn, rival: Conn, table: str
) -> None:
    """E7: by then its own statement has waited for a second, so the lock is no short one."""
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"sexton.{table}"):
        pytest.fail(f"there is no table {table}")
    await rival.execute(f"LOCK TABLE sexton.{table}")
    findings = {one.check: one for one in checks.judge(await asyncio.wait_for(_facts(database_url), 30))}
    found = findings["table locks"]
    assert found.level == "fail"
    assert f"session {rival.get_server_pid()} (billing" in found.detail
    assert f"sexton.{table} in ACCESS EXCLUSIVE mode" in found.detail
    assert f"pg_terminate_backend({rival.get_server_pid()})" in str(found.fix)
    assert not {"migrations", "connections", "locks"} & findings.keys(), "they need the tables"


async def test_doctor_names_a_session_that_lets_it_read(
    database_url: str, rival: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7: nothing that doctor reads is locked, and no service can write."""
    await rival.execute("LOCK TABLE sexton.executions IN SHARE MODE")
    monkeypatch.setattr(locked_tables, "HELD_S", 0.0)
    findings = {one.check: one for one in checks.judge(await _facts(database_url))}
    assert findings["table locks"].level == "fail"
    assert f"session {rival.get_server_pid()} (billing" in findings["table locks"].detail
    assert findings["migrations"].level == "ok"


def test_doctor_says_so_if_it_was_locked_out_by_a_session_that_is_gone() -> None:
    """E7: or by a migration."""
    facts: Any = checks.Facts(None, None, None, None, (), True)  # type: ignore[arg-type]
    found = checks.table_locks(facts)
    assert found.level == "warn"
    assert "again" in str(found.fix)


async def test_why_names_a_session_that_has_locked_a_table(
    connection: Conn, rival: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C19, E9: before what it says about a run, because no run can end."""
    job_id = await connection.fetchval("SELECT sexton.submit('a', '{}')")
    await rival.execute("LOCK TABLE sexton.executions IN SHARE MODE")
    assert "billing" not in (await explain(connection, TESTER, job_id)).answer, "it may be a lock of a moment"
    monkeypatch.setattr(locked_tables, "HELD_S", 0.0)
    explained = await explain(connection, TESTER, job_id)
    assert f"session {rival.get_server_pid()} (billing" in explained.answer
    assert "sexton.executions in SHARE mode" in explained.answer
    assert explained.chain[0].evidence["pid"] == rival.get_server_pid()


async def test_why_does_not_wait_for_a_table_that_it_cannot_read(
    connection: Conn, rival: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await connection.fetchval("SELECT sexton.submit('a', '{}')")
    await rival.execute("LOCK TABLE sexton.runs")
    monkeypatch.setattr(locked_tables, "HELD_S", 0.0)
    with pytest.raises(Contention, match=rf"session {rival.get_server_pid()} \(billing.* sexton.runs in ACCESS EXCLUSIVE mode"):
        await asyncio.wait_for(explain(connection, TESTER, job_id), 30)
