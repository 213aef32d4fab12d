"""Functions: one file each, applied by checksum, superseded by name, removed by release."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sexton.store
from sexton.errors import SchemaMismatch
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.migrations import functions
from tests.migration.shipping import ships, sql_step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

FOLDER = Path(sexton.store.__file__).parent / "functions"
HEADED = """\
-- Answers.
{header}-- Called by: tests. Locks: none.
CREATE OR REPLACE FUNCTION sexton.answer(n int) RETURNS int LANGUAGE sql AS $$ SELECT n * {factor} $$;
"""
SUPERSEDED = "-- superseded by: reply; removed in: 0.3.0\n-- signature: sexton.answer(int)\n"


@pytest.fixture
async def migrated(database_url: str) -> AsyncIterator[Postgres]:
    database = await Postgres.open(database_url)
    yield database
    await database.close()


def answer(factor: int, header: str = "") -> functions.Function:
    return functions.read("answer", HEADED.format(factor=factor, header=header))


async def value(database: Postgres) -> int:
    async with database.connection() as connection:
        ((found,),) = await connection.fetch("SELECT sexton.answer(1)")
    return int(found)


ORIGINAL = functions.known()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_a_file_holds_one_function_and_says_what_it_promises(path: Path) -> None:
    """A reader finds the only body of a function under its name, and what it locks."""
    text = path.read_text()
    header, _, _ = text.partition("CREATE OR REPLACE FUNCTION")
    assert len(re.findall(r"^CREATE OR REPLACE FUNCTION sexton\.", text, re.MULTILINE)) == 1
    assert all(line.startswith("--") for line in header.splitlines())
    assert "Locks: " in header
    assert len(header.splitlines()) >= 2


async def test_every_body_is_valid_on_the_migrated_schema(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Migrating does not check bodies, because they may name each other in any order."""
    await connection.execute("SET check_function_bodies = on")
    for function in functions.known():
        await connection.execute(function.sql)


async def test_a_changed_function_is_applied_once_by_many_migrators(
    migrated: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: with the table that it needs, in the same transaction."""
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)])
    await migrations.migrate(migrated)
    needs = sql_step("0100_needed", "CREATE TABLE sexton.needed (n int)")
    ships(monkeypatch, [needs], made_of=[*ORIGINAL, answer(2)])
    nodes = [await Postgres.open(database_url, size=1) for _ in range(6)]
    applied = await asyncio.gather(*(migrations.migrate(node) for node in nodes))
    for node in nodes:
        await node.close()
    assert sorted(applied, key=len) == [[]] * 5 + [["0100_needed", "function answer"]]
    assert await value(migrated) == 2


async def test_a_step_that_fails_keeps_the_old_function(migrated: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: no body without its table."""
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)])
    await migrations.migrate(migrated)
    broken = sql_step("0100_broken", "SELECT 1 / 0", "migrate")
    ships(monkeypatch, [broken], made_of=[*ORIGINAL, answer(2)])
    with pytest.raises(Exception, match="division by zero"):
        await migrations.migrate(migrated)
    assert await value(migrated) == 1


async def test_a_service_of_the_last_release_accepts_the_new_body(migrated: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: it recognises its own among those that were here, and its `migrate` does not put it back."""
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)])
    await migrations.migrate(migrated)
    ships(monkeypatch, made_of=[*ORIGINAL, answer(2)], as_="0.2.0")
    with pytest.raises(SchemaMismatch, match="lacks function answer; run: sexton migrate"):
        await migrations.require_current(migrated)
    await migrations.migrate(migrated)
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)], as_="0.1.0")
    await migrations.require_current(migrated)
    assert await migrations.migrate(migrated) == []
    assert await value(migrated) == 2


async def test_a_body_that_was_taken_back_is_applied_again(migrated: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: a release may return to an older body."""
    for release, factor in (("0.1.0", 1), ("0.2.0", 2), ("0.3.0", 1)):
        ships(monkeypatch, made_of=[answer(factor)], as_=release)
        assert await migrations.migrate(migrated) == ["function answer"]
        assert await value(migrated) == factor


async def test_a_superseded_function_stays_until_its_release_and_then_goes(
    migrated: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: the last release still finds what it calls; a release that called it is refused once it is gone."""
    for release in ("0.1.0", "0.2.0"):
        ships(monkeypatch, made_of=[answer(1, SUPERSEDED)], as_=release)
        await migrations.migrate(migrated)
        assert await value(migrated) == 1
    ships(monkeypatch, made_of=[answer(1, SUPERSEDED)], as_="0.3.0")
    await migrations.require_current(migrated)
    assert await migrations.migrate(migrated) == ["function answer"]
    assert await migrations.migrate(migrated) == []
    async with migrated.connection() as connection:
        assert (await connection.fetch("SELECT to_regproc('sexton.answer') AS there"))[0]["there"] is None
    ships(monkeypatch, made_of=[answer(1)], as_="0.2.0")
    with pytest.raises(SchemaMismatch, match="no longer has the function answer; upgrade Sexton on this machine"):
        await migrations.require_current(migrated)


async def test_a_new_function_is_not_open_to_everybody(migrated: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: PostgreSQL opens every new function to PUBLIC; the rights close it in the same transaction."""
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)])
    await migrations.migrate(migrated)
    async with migrated.connection() as connection:
        ((is_open,),) = await connection.fetch("SELECT has_function_privilege('public', 'sexton.answer(int)', 'EXECUTE')")
    assert is_open is False


def test_a_superseded_function_without_its_signature_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="its signature"):
        answer(1, "-- superseded by: reply; removed in: 0.3.0\n")
