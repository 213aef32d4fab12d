"""Migrations: applied once, by whoever comes first, checked, printable; and the guard in front of every service."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sexton.errors import DataRefused, SchemaMismatch
from sexton.store import migrate
from sexton.store.database import Postgres
from sexton.store.migrate import Migration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ALL = [migration.title for migration in migrate.known()]

# Everything of the schema that a program could tell apart, without partitions, whose names follow the calendar.
CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull,
          pg_get_expr(d.adbin, d.adrelid) AS def
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition""",
    "tables": """
        SELECT relname, relkind, reloptions, relpersistence, relacl::text FROM pg_class
        WHERE relnamespace = 'sexton'::regnamespace AND NOT relispartition AND relkind <> 'i'""",
    "indexes": """
        SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'sexton'
        AND tablename IN (SELECT relname FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND NOT relispartition)""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'sexton'::regnamespace AND conrelid IN (SELECT oid FROM pg_class WHERE NOT relispartition)""",
    "functions": """
        SELECT p.oid::regprocedure::text, prosrc, proconfig, prosecdef, provolatile, proacl::text FROM pg_proc p
        WHERE pronamespace = 'sexton'::regnamespace""",
    "triggers": "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
}


@pytest.fixture
async def empty(empty_database_url: str) -> AsyncIterator[Postgres]:
    database = await Postgres.open(empty_database_url)
    yield database
    await database.close()


async def _catalogue(url: str) -> dict[str, list[tuple[Any, ...]]]:
    connection = await asyncpg.connect(url)
    try:
        return {
            name: sorted((tuple(row) for row in await connection.fetch(query)), key=str) for name, query in CATALOGUE.items()
        }
    finally:
        await connection.close()


def _shipping(monkeypatch: pytest.MonkeyPatch, migrations: list[Migration]) -> None:
    monkeypatch.setattr(migrate, "known", lambda: migrations)


def test_migrations_are_numbered_without_a_gap() -> None:
    """D7: order is never in doubt."""
    assert [migration.number for migration in migrate.known()] == list(range(1, len(ALL) + 1))


async def test_an_empty_database_gets_everything_once(empty: Postgres) -> None:
    """D7: the second run applies nothing."""
    assert await migrate.migrate(empty) == ALL
    assert await migrate.migrate(empty) == []
    await migrate.require_current(empty)
    async with empty.connection() as connection:
        rows = await connection.fetch("SELECT number, checksum FROM sexton.migrations ORDER BY 1")
    assert [(row["number"], row["checksum"]) for row in rows] == [(m.number, m.checksum) for m in migrate.known()]


async def test_many_migrators_at_once_apply_each_migration_once(empty_database_url: str) -> None:
    """D7: eight nodes of a rolling deploy."""
    nodes = [await Postgres.open(empty_database_url, size=1) for _ in range(8)]
    applied = await asyncio.gather(*(migrate.migrate(node) for node in nodes))
    for node in nodes:
        await migrate.require_current(node)
        await node.close()
    assert sorted(applied, key=len) == [[]] * 7 + [ALL]


async def test_migrators_work_through_a_pooler(empty_database_url: str, pooled_empty: Postgres) -> None:
    """Rule "session state only on direct connections": the lock is of the transaction, not of the session."""
    applied = await asyncio.gather(*(migrate.migrate(pooled_empty) for _ in range(3)))
    assert sorted(applied, key=len) == [[], [], ALL]


@pytest.fixture
async def pooled_empty(empty_database_url: str) -> AsyncIterator[Postgres]:
    from tests.pgbouncer import find_pgbouncer, pgbouncer

    if find_pgbouncer() is None:
        pytest.skip("PgBouncer is missing")
    with pgbouncer(empty_database_url) as url:
        database = await Postgres.open(url)
        yield database
        await database.close()


async def test_a_migration_that_fails_leaves_nothing_behind(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: all of a run or none of it; the next run starts where this one did."""
    good = migrate.known()
    _shipping(monkeypatch, [*good, Migration(len(good) + 1, "broken", "CREATE TABLE sexton.half (n int); SELECT 1 / 0")])
    with pytest.raises((asyncpg.PostgresError, DataRefused)):
        await migrate.migrate(empty)
    async with empty.connection() as connection:
        assert (await connection.fetch("SELECT to_regnamespace('sexton') AS there"))[0]["there"] is None
    _shipping(monkeypatch, good)
    assert await migrate.migrate(empty) == ALL


async def test_an_upgrade_applies_only_what_is_new(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7."""
    everything = migrate.known()
    _shipping(monkeypatch, everything[:2])
    assert await migrate.migrate(empty) == ALL[:2]
    _shipping(monkeypatch, everything)
    with pytest.raises(SchemaMismatch, match=rf"lacks {', '.join(ALL[2:])}; run: sexton migrate"):
        await migrate.require_current(empty)
    assert await migrate.migrate(empty) == ALL[2:]


async def test_a_changed_migration_is_refused(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: the message names it."""
    await migrate.migrate(empty)
    first, *rest = migrate.known()
    _shipping(monkeypatch, [first._replace(sql=first.sql + "\n-- improved"), *rest])
    for check in (migrate.migrate, migrate.require_current, migrate.script):
        with pytest.raises(SchemaMismatch, match=f"{first.title} was applied in another form"):
            await check(empty)


async def test_a_schema_from_the_future_is_refused(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: an old node must not run on what it does not know, and is told what to do."""
    await migrate.migrate(empty)
    *known, last = migrate.known()
    _shipping(monkeypatch, known)
    for check in (migrate.migrate, migrate.require_current, migrate.script):
        with pytest.raises(SchemaMismatch, match=f"{last.title}, which this version of Sexton does not know; upgrade"):
            await check(empty)


async def test_a_database_without_schema_is_refused_by_naming_the_command(empty: Postgres) -> None:
    """D7, E7."""
    with pytest.raises(SchemaMismatch, match="run: sexton migrate"):
        await migrate.require_current(empty)


async def test_the_script_run_by_hand_gives_the_same_schema(
    empty: Postgres, empty_database_url: str, template: str, server_url: Callable[[str], str]
) -> None:
    """D7: for those whose database administrator runs everything; and then nothing is left to print."""
    text = await migrate.script(empty)
    async with empty.connection() as connection:
        assert (await connection.fetch("SELECT to_regnamespace('sexton') AS there"))[0]["there"] is None, (
            "printing changes nothing"
        )
        await connection.execute(text)
    assert await _catalogue(empty_database_url) == await _catalogue(server_url(template))
    await migrate.require_current(empty)
    assert await migrate.script(empty) == ""
    assert await migrate.migrate(empty) == []


async def test_the_script_of_an_upgrade_holds_only_what_is_new(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7."""
    everything = migrate.known()
    _shipping(monkeypatch, everything[:2])
    await migrate.migrate(empty)
    _shipping(monkeypatch, everything)
    text = await migrate.script(empty)
    assert re.findall(r"^-- (\d{4}_\w+)$", text, re.MULTILINE) == ALL[2:]
    async with empty.connection() as connection:
        await connection.execute(text)
    await migrate.require_current(empty)


async def test_the_script_run_twice_by_accident_fails_and_changes_nothing(empty: Postgres, empty_database_url: str) -> None:
    """D7: two administrators."""
    text = await migrate.script(empty)
    async with empty.connection() as connection:
        await connection.execute(text)
    before = await _catalogue(empty_database_url)
    second = await asyncpg.connect(empty_database_url)
    with pytest.raises(asyncpg.PostgresError):
        await second.execute(text)
    await second.close()
    assert await _catalogue(empty_database_url) == before


async def test_no_foreign_keys_and_no_gin_on_hot_tables(template: str, server_url: Callable[[str], str]) -> None:
    """B11, docs/adr/001: these cost every job."""
    catalogue = await _catalogue(server_url(template))
    assert [row for row in catalogue["constraints"] if "FOREIGN KEY" in row[2]] == []
    assert [row for row in catalogue["indexes"] if "USING btree" not in row[1]] == []
