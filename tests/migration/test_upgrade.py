"""A database as commit 413f5aa leaves it, upgraded: the same schema as a new one, and its jobs are served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from sexton.domain.job import submission
from sexton.errors import SchemaMismatch
from sexton.operations import definition_change, one_time_jobs
from sexton.operations.versions import AtVersion
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.migrations import functions, ledger, steps
from sexton.store.views import search
from sexton.store.views.search import JobFilter
from sexton.store.work import jobs
from tests.callers import TESTER
from tests.migration.catalogue import read_catalogue
from tests.migration.shipping import run_script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

FOR_USERS = ("sexton.submit(", "sexton.submit_schedule(")  # no service calls them
WIDENED = [("sexton.runs", "state_is_known")]  # constraints that allow everything they did before, and more
PREVIOUS = (Path(__file__).parent / "fixtures" / "413f5aa_schema.dump").read_text()


@pytest.fixture
async def previous_url(empty_database_url: str) -> str:
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute(PREVIOUS)
    await connection.close()
    return empty_database_url


@pytest.fixture
async def previous(previous_url: str) -> AsyncIterator[Postgres]:
    database = await Postgres.open(previous_url)
    yield database
    await database.close()


async def _ledger(database: Postgres) -> list[tuple[int, str, str]]:
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT number, name, checksum FROM sexton.migrations ORDER BY number")
    return [tuple(row) for row in rows]


async def test_an_upgraded_database_has_the_schema_of_a_new_one(
    previous: Postgres, previous_url: str, template: str, server_url: Callable[[str], str]
) -> None:
    """D7: by every way to upgrade."""
    later = [step for step in steps.known() if not step.is_baseline]
    assert await migrations.migrate(previous) == [
        "0000_baseline/* (adopted as the previous release left it)",
        *(step.name for step in later if step.phase == "expand"),
        *(f"function {function.name}" for function in functions.known()),
        *(step.name for step in later if step.phase != "expand"),
    ]
    await migrations.require_current(previous)
    assert await migrations.migrate(previous) == []
    assert await read_catalogue(previous_url) == await read_catalogue(server_url(template))


async def test_an_upgrade_keeps_every_table_and_every_signature_of_the_previous_release(
    previous: Postgres, previous_url: str
) -> None:
    """D7: services of 413f5aa run beside new ones. A body may change; tests/process/test_two_releases.py runs both on it."""
    before = await read_catalogue(previous_url)
    await migrations.migrate(previous)
    after = await read_catalogue(previous_url)
    before["functions"], after["functions"] = (  # pg_dump does not distinguish default rights from none
        [(name, *rest[:-1]) for name, _body, *rest in catalogue["functions"]] for catalogue in (before, after)
    )
    for part, rows in before.items():
        gone = [row for row in rows if row not in after[part] and row[:2] not in WIDENED]
        assert [row for row in gone if not str(row[0]).startswith(FOR_USERS)] == []


@pytest.mark.parametrize("by_hand", [False, True])
async def test_the_functions_for_users_take_more_arguments_and_roles_keep_their_grants(
    previous: Postgres, previous_url: str, by_hand: bool
) -> None:
    """A12, D7: two functions of one name with defaults would be ambiguous, so the new one replaces the old one."""
    by_name = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = $1 AND pronamespace = 'sexton'::regnamespace"
    connection = await asyncpg.connect(previous_url)
    try:
        await connection.execute('DROP ROLE IF EXISTS "upgrade clerk"; CREATE ROLE "upgrade clerk"')
        for function in ("submit", "submit_schedule"):
            (name,) = [row[0] for row in await connection.fetch(by_name, function)]
            await connection.execute(f'GRANT EXECUTE ON FUNCTION {name} TO "upgrade clerk"')
        if by_hand:
            await run_script(connection, await migrations.script(previous))
        assert bool(await migrations.migrate(previous)) is not by_hand
        for function in ("submit", "submit_schedule"):
            (name,) = [row[0] for row in await connection.fetch(by_name, function)]
            assert await connection.fetchval("SELECT has_function_privilege('upgrade clerk', $1, 'EXECUTE')", name)
        assert await connection.fetchval("SELECT sexton.submit('a', '{}', now(), limit_key => 'x', limit_running => 1)")
    finally:
        await connection.execute('DROP OWNED BY "upgrade clerk"; DROP ROLE "upgrade clerk"')
        await connection.close()


async def test_the_previous_ledger_is_unchanged_and_a_new_database_has_the_same(previous: Postgres, database: Postgres) -> None:
    """D7: a service of 413f5aa starts only if it finds exactly its 21 migrations, so it can still be started on both."""
    before = await _ledger(previous)
    await migrations.migrate(previous)
    assert await _ledger(previous) == before == await _ledger(database) == ledger.previous_migrations()
    assert len(before) == 21


async def test_a_service_rejects_the_previous_schema_with_the_command(previous: Postgres) -> None:
    """D7."""
    with pytest.raises(SchemaMismatch, match=r"lacks 0000_baseline/10_jobs, .* more; run: sexton migrate"):
        await migrations.require_current(previous)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM sexton.migrations WHERE number > 18", "has 18 of the 21 migrations .*413f5aa.*: sexton migrate"),
        (
            "UPDATE sexton.migrations SET checksum = 'x' WHERE number = 3",
            "0003_finish of this database is not the released one",
        ),
        (
            "INSERT INTO sexton.migrations (number, name, checksum) VALUES (22, 'later', 'x')",
            "0022_later, which this release does not know; upgrade Sexton on this machine",
        ),
    ],
)
async def test_another_history_of_migrations_is_rejected_in_one_line_with_the_fix(
    previous: Postgres, change: str, says: str
) -> None:
    """D7: the baseline is only the result of exactly the 21 released migrations."""
    async with previous.transaction() as connection:
        await connection.execute(change)
    for check in (migrations.migrate, migrations.require_current, migrations.script):
        with pytest.raises(SchemaMismatch, match=says) as caught:
            await check(previous)
        assert "\n" not in str(caught.value)


async def test_the_script_of_an_upgrade_run_by_hand_does_the_same(
    previous: Postgres, previous_url: str, template: str, server_url: Callable[[str], str]
) -> None:
    """D7: for installations where a database administrator runs all DDL."""
    text = await migrations.script(previous)
    connection = await asyncpg.connect(previous_url)
    await run_script(connection, text)
    await connection.close()
    assert await migrations.migrate(previous) == []
    assert await read_catalogue(previous_url) == await read_catalogue(server_url(template))


async def test_older_jobs_are_found_by_all_their_attributes(previous: Postgres) -> None:
    """D7, A8: a database that has jobs, among them tagged ones."""
    async with previous.transaction() as connection:
        documents = [submission("a", {}, delay="1h", name="n", tags=["red", "red", "blue"]), submission("a", {}, delay="1h")]
        tagged, plain = [answer.id for answer in await jobs.submit(connection, documents)]
    await migrations.migrate(previous)
    async with previous.transaction() as connection:
        for chosen, expected in (
            (JobFilter(tag="red"), [tagged]),
            (JobFilter(name="n"), [tagged]),
            (JobFilter(tenant="default"), [plain, tagged]),
            (JobFilter(status="pending"), [plain, tagged]),
        ):
            assert [job.id for job in (await search.find_jobs(connection, chosen, limit=5)).rows] == expected
        assert (
            await one_time_jobs.edit(connection, TESTER, AtVersion(tagged), definition_change.Changes(tags=("green",)))
        ).version == 2
        await one_time_jobs.pause(connection, TESTER, plain)
