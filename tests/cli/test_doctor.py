"""`sexton doctor`: each check on good and bad facts, and the whole command on a server with faults."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from sexton.cli import main as cli
from sexton.cli.doctor import checks
from sexton.cli.doctor import command as doctor
from sexton.cli.doctor.checks import Facts, Finding, Process
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.views.diagnosis import LastHeartbeat, Prepared, SchemaFacts, ServerFacts, Slot, Table, Transaction
from sexton.store.views.locked_rows import Holder, LockedRow
from sexton.store.views.locked_tables import LockedTables
from sexton.store.work import retention

SERVER = ServerFacts(
    now=datetime(2026, 3, 4, tzinfo=UTC),
    is_replica=False,
    version=180001,
    connection_count=10,
    sync_standby_count=0,
    settings={
        "autovacuum": "on",
        "autovacuum_naptime": "60",
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        "fsync": "on",
        "full_page_writes": "on",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
        "max_connections": "100",
        "reserved_connections": "0",
        "superuser_reserved_connections": "3",
        "synchronous_commit": "on",
        "synchronous_standby_names": "",
        "track_counts": "on",
        "transaction_timeout": "0",
    },
    transactions=[],
    prepared=[],
    slots=[],
)
LIVE, SILENT = LastHeartbeat(["default"], 0.5, True), LastHeartbeat(["default"], 60.0, False)
SCHEMA = SchemaFacts(
    tables=[Table("runs", 100, 10, False)],
    days_ahead={"executions": 15.0, "jobs": 18.0},
    is_foreign=False,
    nodes=[LastHeartbeat([], 1.0, True)],
    workers=[LIVE],
    ready_queues=["default"],
)
PROCESS = Process(
    pool_size=4,
    transaction_pool_size=8,
    is_embedded=False,
    is_direct=True,
    has_direct_url=False,
    hears=True,
    tzdata="2025b",
)
HELD = LockedRow("schedule", "report", UUID(int=7), None, Holder("700", 7, None, "psql", "ada", "10.0.0.7", 90.0))
TABLES = LockedTables(HELD.holder, ["runs"], "ExclusiveLock", False)
OTHER = LockedRow("limit", "stripe", None, None, Holder("800", None, "two-phase", None, "ada", None, 900.0))
HEALTHY = Facts(PROCESS, SERVER, None, SCHEMA)
POOLED = {"is_direct": False, "hears": None}


def facts(
    *, process: dict[str, Any] | None = None, server: dict[str, Any] | None = None, schema: dict[str, Any] | None = None
) -> Facts:
    """Healthy facts, with these changes."""
    server = dict(server or {})
    settings = {**SERVER.settings, **{name: value for name, value in server.items() if name in SERVER.settings}}
    server = {name: value for name, value in server.items() if name not in SERVER.settings}
    return Facts(
        msgspec.structs.replace(PROCESS, **(process or {})),
        msgspec.structs.replace(SERVER, **server, settings=settings),
        None,
        msgspec.structs.replace(SCHEMA, **(schema or {})),
    )


def found(facts: Facts, check: str) -> Finding:
    (finding,) = [finding for finding in checks.judge(facts) if finding.check == check]
    return finding


def test_a_healthy_cluster_is_all_ok() -> None:
    """E7."""
    findings = checks.judge(HEALTHY)
    assert {finding.level for finding in findings} == {"ok"}
    assert len({finding.check for finding in findings}) == len(findings) == 22


@pytest.mark.parametrize(
    ("check", "level", "wrong"),
    [
        ("version", "fail", facts(server={"version": 140012})),
        ("writable", "fail", facts(server={"is_replica": True})),
        ("writable", "fail", facts(server={"default_transaction_read_only": "on"})),
        ("isolation", "fail", facts(server={"default_transaction_isolation": "serializable"})),
        ("connection", "warn", facts(process=POOLED)),
        ("connection", "fail", facts(process={**POOLED, "has_direct_url": True, "direct_url_is_direct": False})),
        ("connection", "ok", facts(process={**POOLED, "has_direct_url": True, "direct_url_is_direct": True, "hears": True})),
        ("listen", "fail", facts(process={"hears": False})),
        ("listen", "ok", facts(process={"hears": None})),
        ("clock", "warn", facts(process={"skew_s": -30.0, "skew_unsure_s": 0.1})),
        ("clock", "ok", facts(process={"skew_s": 3.0, "skew_unsure_s": 2.0})),
        ("connections", "fail", facts(schema={"workers": [LIVE] * 7})),
        ("connections", "warn", facts(schema={"workers": [LIVE] * 5})),
        ("connections", "ok", facts(schema={"workers": [SILENT] * 50})),
        ("connections", "fail", facts(server={"max_connections": "20"})),
        ("connections", "warn", facts(server={"connection_count": 95})),
        ("connections", "ok", facts(process=POOLED, schema={"workers": [LIVE] * 50})),
        ("durability", "fail", facts(server={"fsync": "off"})),
        ("durability", "fail", facts(server={"full_page_writes": "off"})),
        ("durability", "warn", facts(server={"synchronous_commit": "off"})),
        ("replication", "fail", facts(server={"synchronous_standby_names": "*"})),
        ("replication", "ok", facts(server={"synchronous_standby_names": "*", "sync_standby_count": 1})),
        ("replication", "ok", facts(server={"synchronous_standby_names": "*", "synchronous_commit": "local"})),
        (
            "replication",
            "warn",
            facts(server={"synchronous_standby_names": "*", "sync_standby_count": 1, "synchronous_commit": "remote_apply"}),
        ),
        ("autovacuum", "fail", facts(server={"autovacuum": "off"})),
        ("autovacuum", "fail", facts(server={"track_counts": "off"})),
        ("autovacuum", "warn", facts(server={"autovacuum_naptime": "3600"})),
        ("autovacuum", "fail", facts(schema={"tables": [Table("runs", 1, 1, True)]})),
        ("transactions", "warn", facts(server={"transactions": [Transaction(7, "psql", "idle in transaction", 90.0)]})),
        ("transactions", "warn", facts(server={"prepared": [Prepared("two-phase", 90.0)]})),
        ("slots", "warn", facts(server={"slots": [Slot("gone", False, 5)]})),
        ("slots", "ok", facts(server={"slots": [Slot("used", True, 5)]})),
        ("timeouts", "warn", facts(server={"idle_session_timeout": "60000"})),
        ("timeouts", "warn", facts(server={"transaction_timeout": "5000"})),
        ("timeouts", "ok", facts(server={"idle_in_transaction_session_timeout": "1000"})),  # Sexton's own sessions override it
        ("timeouts", "warn", facts(process=POOLED, server={"idle_in_transaction_session_timeout": "1000"})),
        ("tzdata", "warn", facts(process={"tzdata": "2023c"})),
        ("tzdata", "warn", facts(schema={"tzdata": "2025c"})),
        ("tzdata", "ok", facts(schema={"tzdata": "2025a"})),
        ("home", "fail", facts(schema={"is_foreign": True})),
        ("partitions", "warn", facts(schema={"days_ahead": {"executions": 3.0, "jobs": 18.0}})),
        ("partitions", "fail", facts(schema={"days_ahead": {"executions": -0.5, "jobs": 18.0}})),
        ("partitions", "fail", facts(schema={"days_ahead": {}})),
        ("scheduler", "warn", facts(schema={"nodes": []})),
        ("scheduler", "warn", facts(schema={"nodes": [LastHeartbeat([], 60.0, False)]})),
        ("workers", "warn", facts(schema={"ready_queues": ["default", "mail"]})),
        ("workers", "fail", facts(schema={"workers": [SILENT]})),
        ("workers", "warn", facts(schema={"workers": [], "ready_queues": []})),
        ("locks", "warn", facts(schema={"locked": [HELD, OTHER]})),
        ("table locks", "fail", msgspec.structs.replace(HEALTHY, tables=[TABLES])),
        ("dead rows", "warn", facts(schema={"tables": [Table("runs", 100, 1_000_000, False)]})),
        ("dead rows", "ok", facts(schema={"tables": [Table("runs", 1_000_000, 60_000, False)]})),
    ],
)
def test_each_fault_is_found_and_nothing_else(check: str, level: str, wrong: Facts) -> None:
    """E7: and every finding has advice."""
    finding = found(wrong, check)
    assert finding.level == level
    assert (finding.fix is None) == (level == "ok")
    others = {other.check for other in checks.judge(wrong) if other.level != "ok"} - {check}
    assert others <= {"connection", "workers", "connections", "scheduler"}  # a dead worker affects more than one check


def test_without_a_schema_only_the_server_is_checked() -> None:
    """E7."""
    findings = checks.judge(Facts(PROCESS, SERVER, "no schema yet; run: sexton migrate", None))
    assert [finding.check for finding in findings if finding.level == "fail"] == ["migrations"]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sexton", *arguments])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        return int(exited.value.code or 0), *capsys.readouterr()

    return called


def test_a_locked_row_is_named_with_the_session_that_holds_it_and_how_to_end_it() -> None:
    """E7, rule "never wait inside a batch"."""
    finding = found(facts(schema={"locked": [HELD]}), "locks")
    row = "schedule 'report' (00000000-0000-0000-0000-000000000007)"
    assert finding.detail == f"session 7 (psql, user ada, from 10.0.0.7) has held {row} for up to 90 s"
    assert "SELECT pg_terminate_backend(7)" in str(finding.fix)
    assert "ROLLBACK PREPARED 'two-phase'" in str(found(facts(schema={"locked": [OTHER]}), "locks").fix)


async def test_faults_of_a_real_server_are_found(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """E7: settings of the database, an open transaction, a queue without workers, a table that is never vacuumed."""
    name = await connection.fetchval("SELECT current_database()")
    for setting in (
        "idle_session_timeout = '30s'",
        "default_transaction_isolation = 'serializable'",
        "synchronous_commit = off",
    ):
        await connection.execute(f'ALTER DATABASE "{name}" SET {setting}')
    await connection.execute("ALTER TABLE sexton.runs SET (autovacuum_enabled = false)")
    await connection.execute("SELECT sexton.submit('nobody', '{}', queue => 'lonely')")
    database = await Postgres.open(database_url)
    try:
        async with database.connection() as own:
            await retention.make_partitions(own)  # a test's database begins with those of today only
        findings = {finding.check: finding for finding in checks.judge(await doctor.facts_of(database, Settings()))}
    finally:
        await database.close()
    assert findings["timeouts"].level == "warn"
    assert findings["isolation"].level == "fail"
    assert findings["autovacuum"].level == "fail"
    assert findings["durability"].level != "ok"
    assert (findings["workers"].level, findings["scheduler"].level) == ("fail", "warn")
    assert "lonely" in findings["workers"].detail
    for check in ("version", "writable", "migrations", "connection", "listen", "clock", "partitions", "home"):
        assert findings[check].level == "ok", findings[check]


async def test_a_pooler_is_reported(pooled_url: str, database_url: str) -> None:
    """E7, rule "session state only on direct connections"."""
    database = await Postgres.open(pooled_url)
    try:
        alone = await doctor.facts_of(database, Settings())
        beside = await doctor.facts_of(database, Settings(direct_url=database_url))  # type: ignore[arg-type]
        astray = await doctor.facts_of(database, Settings(direct_url=pooled_url))  # type: ignore[arg-type]
    finally:
        await database.close()
    assert [found(facts, "connection").level for facts in (alone, beside, astray)] == ["warn", "ok", "fail"]
    assert (alone.process.hears, beside.process.hears, astray.process.hears) == (None, True, None)


def test_the_command_has_output_for_people_and_programs(
    call: Callable[..., tuple[int, str, str]], empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E6, E7."""
    monkeypatch.setenv("SEXTON_DATABASE_URL", empty_database_url)
    code, out, _ = call("doctor")
    assert code == 1
    assert "-> run: sexton migrate" in out
    code, out, _ = call("doctor", "--json", "--url", "http://127.0.0.1:1")
    levels = {finding["check"]: finding["level"] for finding in json.loads(out)}
    assert (code, levels["api"], levels["reachable"], levels["migrations"]) == (1, "fail", "ok", "fail")


def test_an_unreachable_database_is_one_finding_without_its_password(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7, F5."""
    for url in ("postgresql://u:hunter2@127.0.0.1:1/db", "hunter2"):
        monkeypatch.setenv("SEXTON_DATABASE_URL", url)
        code, out, err = call("doctor", "--json")
        (finding,) = json.loads(out)
        assert (code, finding["check"], finding["level"]) == (1, "reachable", "fail")
        assert "hunter2" not in out + err


async def test_a_role_without_rights_is_told_which_it_lacks(
    database_url: str, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7."""
    role = f"doctor_{secrets.token_hex(4)}"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'hunter2'")
    try:
        monkeypatch.setenv("SEXTON_DATABASE_URL", database_url.replace("postgres@", f"{role}:hunter2@", 1))
        finding = (await doctor.examine(None))[-1]
    finally:
        await connection.execute(f"DROP ROLE {role}")
    assert (finding.check, finding.level) == ("privileges", "fail")
    assert "permission denied" in finding.detail


async def test_the_check_changes_nothing(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """E7: not even the mark that identifies the owner of a new database."""
    await connection.execute("DELETE FROM sexton.cluster")
    database = await Postgres.open(database_url)
    await doctor.facts_of(database, Settings())
    await database.close()
    assert await connection.fetchval("SELECT count(*) FROM sexton.cluster") == 0
