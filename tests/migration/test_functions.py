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
from tests.migration.callers import callers_of, header_of, named_in
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
# Both signatures of these names were in the database of 413f5aa: migrations/README.md.
OF_ANOTHER_NAME = ("callback_ends_at_of_job", "uuid7_from_bits")
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
def test_a_file_contains_one_function_and_its_documentation(path: Path) -> None:
    """A reader finds the only body of a function under its name, what its callers may rely on, and what it locks."""
    text = path.read_text()
    header, _, _ = text.partition("CREATE OR REPLACE FUNCTION")
    assert len(re.findall(r"^CREATE OR REPLACE FUNCTION sexton\.", text, re.MULTILINE)) == 1
    assert all(line.startswith("--") for line in header.splitlines())
    assert re.search(r"\w.* Promises: \S.* Called by: \S.* Locks: \S", header_of(path)), "in this order"
    assert (re.findall(r"FUNCTION sexton\.(\w+)", text)[0] == path.stem) is (path.stem not in OF_ANOTHER_NAME)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sql")), ids=lambda path: path.stem)
def test_the_header_names_every_caller_and_no_other(path: Path) -> None:
    """Derived from the files, so that a header stays true when a call comes or goes."""
    assert named_in(header_of(path)) == callers_of(path)


async def test_every_body_is_valid_on_the_migrated_schema(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Migrating does not check bodies, because they may refer to each other in any order."""
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
    """D7: no new body without its table."""
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)])
    await migrations.migrate(migrated)
    broken = sql_step("0100_broken", "SELECT 1 / 0", "migrate")
    ships(monkeypatch, [broken], made_of=[*ORIGINAL, answer(2)])
    with pytest.raises(Exception, match="division by zero"):
        await migrations.migrate(migrated)
    assert await value(migrated) == 1


async def test_a_service_of_the_last_release_accepts_the_new_body(migrated: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: it accepts the new body of a function that it knows, and its `migrate` does not restore the old one."""
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


async def test_an_older_body_is_applied_again_when_a_release_returns_to_it(
    migrated: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: a release may return to an older body."""
    for release, factor in (("0.1.0", 1), ("0.2.0", 2), ("0.3.0", 1)):
        ships(monkeypatch, made_of=[answer(factor)], as_=release)
        assert await migrations.migrate(migrated) == ["function answer"]
        assert await value(migrated) == factor


async def test_a_superseded_function_is_kept_until_its_release_and_then_removed(
    migrated: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: the previous release still finds the functions it calls; a release that calls a removed function is rejected."""
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


async def test_a_new_function_is_not_granted_to_public(migrated: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: PostgreSQL grants every new function to PUBLIC; the same transaction revokes it."""
    ships(monkeypatch, made_of=[*ORIGINAL, answer(1)])
    await migrations.migrate(migrated)
    async with migrated.connection() as connection:
        ((is_open,),) = await connection.fetch("SELECT has_function_privilege('public', 'sexton.answer(int)', 'EXECUTE')")
    assert is_open is False


def test_a_superseded_function_without_its_signature_is_an_error() -> None:
    with pytest.raises(ValueError, match="its signature"):
        answer(1, "-- superseded by: reply; removed in: 0.3.0\n")
