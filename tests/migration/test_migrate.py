"""Migrating: each step and function is applied once, by the first node; the printed script; the check of services."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import msgspec
import pytest

from sexton.errors import DataRefused, SchemaMismatch
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.migrations import functions, release, steps
from tests.migration.catalogue import read_catalogue
from tests.migration.shipping import ships, sql_step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STEPS = [step.name for step in steps.known()]
FUNCTIONS = [f"function {function.name}" for function in functions.known()]
ALL = [*STEPS[:-1], *FUNCTIONS, STEPS[-1]]  # the triggers need the functions
CHECKS = (migrations.migrate, migrations.require_current, migrations.script)


@pytest.fixture
async def empty(empty_database_url: str) -> AsyncIterator[Postgres]:
    database = await Postgres.open(empty_database_url)
    yield database
    await database.close()


@pytest.fixture
async def pooled_empty(empty_database_url: str) -> AsyncIterator[Postgres]:
    from tests.pgbouncer import find_pgbouncer, pgbouncer

    if find_pgbouncer() is None:
        pytest.skip("PgBouncer is missing")
    with pgbouncer(empty_database_url) as url:
        database = await Postgres.open(url)
        yield database
        await database.close()


def test_the_release_is_that_of_the_package() -> None:
    """D7: the ledger of a database has the version of the installed package."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == release.RELEASE


async def test_an_empty_database_gets_everything_once(empty: Postgres) -> None:
    """D7: the second run applies nothing."""
    assert await migrations.migrate(empty) == ALL
    assert await migrations.migrate(empty) == []
    await migrations.require_current(empty)
    async with empty.connection() as connection:
        rows = await connection.fetch("SELECT name, checksum, state FROM sexton.schema_steps ORDER BY 1")
    assert [tuple(row) for row in rows] == sorted((step.name, step.checksum, "done") for step in steps.known())


async def test_many_migrators_at_once_apply_each_step_once(empty_database_url: str) -> None:
    """D7: eight nodes of a rolling deploy."""
    nodes = [await Postgres.open(empty_database_url, size=1) for _ in range(8)]
    applied = await asyncio.gather(*(migrations.migrate(node) for node in nodes))
    for node in nodes:
        await migrations.require_current(node)
        await node.close()
    assert sorted(applied, key=len) == [[]] * 7 + [ALL]


async def test_migrators_work_through_a_pooler(pooled_empty: Postgres) -> None:
    """Rule "session state only on direct connections": the lock is of the transaction, not of the session."""
    applied = await asyncio.gather(*(migrations.migrate(pooled_empty) for _ in range(3)))
    assert sorted(applied, key=len) == [[], [], ALL]


async def test_a_step_that_fails_leaves_nothing_behind(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: all of a run or none of it; the next run starts where this one did."""
    ships(monkeypatch, [sql_step("0100_broken", "CREATE TABLE sexton.half (n int); SELECT 1 / 0")])
    with pytest.raises((asyncpg.PostgresError, DataRefused)):
        await migrations.migrate(empty)
    async with empty.connection() as connection:
        assert (await connection.fetch("SELECT to_regnamespace('sexton') AS there"))[0]["there"] is None
    ships(monkeypatch)
    assert await migrations.migrate(empty) == ALL


async def test_an_upgrade_applies_only_what_is_new(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7."""
    await migrations.migrate(empty)
    ships(monkeypatch, [sql_step("0100_more", "CREATE TABLE sexton.more (n int)")])
    with pytest.raises(SchemaMismatch, match="lacks 0100_more; run: sexton migrate"):
        await migrations.require_current(empty)
    assert await migrations.migrate(empty) == ["0100_more"]


async def test_a_changed_step_is_rejected(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: the message names it."""
    await migrations.migrate(empty)
    first, *rest = steps.known()
    changed = msgspec.structs.replace(first, sql=first.sql + "\nSELECT 1;")
    monkeypatch.setattr(steps, "known", lambda: [changed, *rest])
    for check in CHECKS:
        with pytest.raises(SchemaMismatch, match=f"{first.name} was applied in a different form"):
            await check(empty)


async def test_a_changed_comment_does_not_count(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: an applied step stays applied, and its comments can be corrected."""
    await migrations.migrate(empty)
    first, *rest = steps.known()
    reworded = msgspec.structs.replace(first, sql=f"-- Said better.\n{first.sql}")
    monkeypatch.setattr(steps, "known", lambda: [reworded, *rest])
    assert await migrations.migrate(empty) == []


async def test_a_database_without_a_schema_is_rejected_with_the_command(empty: Postgres) -> None:
    """D7, E7."""
    with pytest.raises(SchemaMismatch, match="run: sexton migrate"):
        await migrations.require_current(empty)


async def test_the_script_run_by_hand_gives_the_same_schema(
    empty: Postgres, empty_database_url: str, template: str, server_url: Callable[[str], str]
) -> None:
    """D7: for installations where a database administrator runs all DDL; afterwards there is nothing left to print."""
    text = await migrations.script(empty)
    async with empty.connection() as connection:
        assert (await connection.fetch("SELECT to_regnamespace('sexton') AS there"))[0]["there"] is None, (
            "printing changes nothing"
        )
        await connection.execute(text)
    assert await read_catalogue(empty_database_url) == await read_catalogue(server_url(template))
    await migrations.require_current(empty)
    assert await migrations.script(empty) == ""
    assert await migrations.migrate(empty) == []


async def test_the_script_of_an_upgrade_contains_only_new_steps(empty: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7."""
    await migrations.migrate(empty)
    ships(monkeypatch, [sql_step("0100_more", "CREATE TABLE sexton.more (n int);")])
    text = await migrations.script(empty)
    assert re.findall(r"^-- (\d{4}_\w+)$", text, re.MULTILINE) == ["0100_more"]
    async with empty.connection() as connection:
        await connection.execute(text)
    await migrations.require_current(empty)


async def test_running_the_script_twice_fails_and_changes_nothing(empty: Postgres, empty_database_url: str) -> None:
    """D7: two administrators."""
    text = await migrations.script(empty)
    async with empty.connection() as connection:
        await connection.execute(text)
    before = await read_catalogue(empty_database_url)
    second = await asyncpg.connect(empty_database_url)
    with pytest.raises(asyncpg.PostgresError):
        await second.execute(text)
    await second.close()
    assert await read_catalogue(empty_database_url) == before


async def test_no_foreign_keys_and_no_gin_on_hot_tables(template: str, server_url: Callable[[str], str]) -> None:
    """B11: what the storage layout promises (docs/adr/001)."""
    catalogue = await read_catalogue(server_url(template))
    assert [row for row in catalogue["constraints"] if "FOREIGN KEY" in row[2]] == []
    assert [row for row in catalogue["indexes"] if "USING btree" not in row[1]] == []
