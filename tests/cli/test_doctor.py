"""`sexton doctor`: each check on facts that are right and facts that are wrong, and the whole on a server that really is."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import pytest

from sexton.cli import main as cli
from sexton.cli.doctor import checks
from sexton.cli.doctor import command as doctor
from sexton.cli.doctor.checks import Facts, Finding, Process
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.views.diagnosis import Prepared, SchemaFacts, ServerFacts, Slot, Table, Transaction

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
SCHEMA = SchemaFacts(
    tables=[Table("runs", 100, 10, False)],
    days_ahead={"executions": 15.0, "jobs": 18.0},
    is_foreign=False,
    node_silences_s=[1.0],
    worker_silences_s=[0.5],
    served={"default": 0.5},
    ready_queues=["default"],
)
PROCESS = Process(
    pool_size=4,
    transaction_pool_size=8,
    lease_s=6.0,
    is_embedded=False,
    is_direct=True,
    has_direct_url=False,
    hears=True,
    tzdata="2025b",
)
HEALTHY = Facts(PROCESS, SERVER, None, SCHEMA)
POOLED = {"is_direct": False, "hears": None}


def facts(
    *, process: dict[str, Any] | None = None, server: dict[str, Any] | None = None, schema: dict[str, Any] | None = None
) -> Facts:
    """The healthy ones, but for these."""
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
    assert len({finding.check for finding in findings}) == len(findings) == 20


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
        ("connections", "fail", facts(schema={"worker_silences_s": [1.0] * 7})),
        ("connections", "warn", facts(schema={"worker_silences_s": [1.0] * 5})),
        ("connections", "ok", facts(schema={"worker_silences_s": [100.0] * 50})),
        ("connections", "fail", facts(server={"max_connections": "20"})),
        ("connections", "warn", facts(server={"connection_count": 95})),
        ("connections", "ok", facts(process=POOLED, schema={"worker_silences_s": [1.0] * 50})),
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
        ("timeouts", "ok", facts(server={"idle_in_transaction_session_timeout": "1000"})),  # our own sessions override it
        ("timeouts", "warn", facts(process=POOLED, server={"idle_in_transaction_session_timeout": "1000"})),
        ("tzdata", "warn", facts(process={"tzdata": "2023c"})),
        ("tzdata", "warn", facts(schema={"tzdata": "2025c"})),
        ("tzdata", "ok", facts(schema={"tzdata": "2025a"})),
        ("home", "fail", facts(schema={"is_foreign": True})),
        ("partitions", "warn", facts(schema={"days_ahead": {"executions": 3.0, "jobs": 18.0}})),
        ("partitions", "fail", facts(schema={"days_ahead": {"executions": -0.5, "jobs": 18.0}})),
        ("partitions", "fail", facts(schema={"days_ahead": {}})),
        ("scheduler", "warn", facts(schema={"node_silences_s": []})),
        ("scheduler", "warn", facts(schema={"node_silences_s": [60.0]})),
        ("workers", "warn", facts(schema={"ready_queues": ["default", "mail"]})),
        ("workers", "fail", facts(schema={"worker_silences_s": [60.0], "served": {"default": 60.0}})),
        ("workers", "warn", facts(schema={"worker_silences_s": [], "served": {}, "ready_queues": []})),
        ("dead rows", "warn", facts(schema={"tables": [Table("runs", 100, 1_000_000, False)]})),
        ("dead rows", "ok", facts(schema={"tables": [Table("runs", 1_000_000, 60_000, False)]})),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else_is(check: str, level: str, wrong: Facts) -> None:
    """E7: and every complaint says what to do."""
    finding = found(wrong, check)
    assert finding.level == level
    assert (finding.fix is None) == (level == "ok")
    others = {other.check for other in checks.judge(wrong) if other.level != "ok"} - {check}
    assert others <= {"connection", "workers", "connections", "scheduler"}  # a dead worker shows in more than one place


def test_without_a_schema_only_the_server_is_judged() -> None:
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


async def test_a_server_that_is_really_wrong_is_found_out(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """E7: settings of the database, a forgotten transaction, a queue that nobody serves, a table that is never vacuumed."""
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


async def test_behind_a_pooler_it_says_so(pooled_url: str, database_url: str) -> None:
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


def test_the_command_answers_for_people_and_programs(
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


def test_a_database_that_is_away_is_one_finding_without_its_password(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7, F5."""
    for url in ("postgresql://u:hunter2@127.0.0.1:1/db", "hunter2"):
        monkeypatch.setenv("SEXTON_DATABASE_URL", url)
        code, out, err = call("doctor", "--json")
        (finding,) = json.loads(out)
        assert (code, finding["check"], finding["level"]) == (1, "reachable", "fail")
        assert "hunter2" not in out + err


async def test_a_role_that_may_not_look_is_told_what_it_lacks(
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


async def test_looking_changes_nothing(database_url: str, connection: asyncpg.Connection[Any]) -> None:
    """E7: not even the mark of whom a new database belongs to."""
    await connection.execute("DELETE FROM sexton.cluster")
    database = await Postgres.open(database_url)
    await doctor.facts_of(database, Settings())
    await database.close()
    assert await connection.fetchval("SELECT count(*) FROM sexton.cluster") == 0
