"""Which schemas a service accepts or rejects: an error is one line that says how to fix it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sexton.errors import SchemaMismatch
from sexton.store import migrations
from sexton.store.migrations import steps
from tests.migration.shipping import CALM, index_step, ships, sql_step

if TYPE_CHECKING:
    from sexton.store.database import Postgres

EXPAND = sql_step("0100_colour", "ALTER TABLE sexton.runs ADD COLUMN colour text")
CONTRACT = sql_step("0101_no_note", "ALTER TABLE sexton.jobs DROP COLUMN note", "contract", runs_from="0.2.0")


async def test_an_older_release_accepts_a_schema_that_was_only_expanded(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: online means that the previous release continues, and can be started again."""
    ships(monkeypatch, [EXPAND], as_="0.2.0")
    await migrations.migrate(database, pace=CALM)
    ships(monkeypatch)
    await migrations.require_current(database)
    assert await migrations.migrate(database) == []
    assert await migrations.script(database) == ""


async def test_an_older_release_rejects_a_schema_that_was_contracted(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: a node must not run on a schema without its functions, and its message says what to do."""
    ships(monkeypatch, [EXPAND, CONTRACT], as_="0.3.0")
    await migrations.migrate(database, pace=CALM)
    ships(monkeypatch, as_="0.2.0")
    await migrations.require_current(database)
    ships(monkeypatch, as_="0.1.0")
    for check in (migrations.migrate, migrations.require_current, migrations.script):
        with pytest.raises(SchemaMismatch) as caught:
            await check(database)
        assert str(caught.value) == (
            "the schema has the step 0101_no_note, which needs Sexton 0.2.0 or newer, and this is 0.1.0; "
            "upgrade Sexton on this machine to the release that migrated the database"
        )


async def test_a_service_does_not_wait_for_the_contract_steps_of_its_release(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: they only remove what this release does not use."""
    ships(monkeypatch, [CONTRACT], made_of=[], as_="0.3.0")
    await migrations.require_current(database)
    assert await migrations.migrate(database, pace=CALM) == ["0101_no_note"]


async def test_contract_steps_come_last(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7: expand, migrate, contract, whatever their names are."""
    first = sql_step("0300_first", "SELECT 1")
    middle = sql_step("0200_middle", "SELECT 1", "migrate")
    last = sql_step("0100_last", "SELECT 1", "contract")
    ships(monkeypatch, [last, middle, first])
    assert await migrations.migrate(database, pace=CALM) == ["0300_first", "0200_middle", "0100_last"]


PLAN = """\
0100_colour (sql, expand, transaction 1)
    locks: runs ACCESS EXCLUSIVE, instant; at most 2 s per try
    undo:  yes
0102_by_task (index, expand, in several transactions)
    locks: no reader and no writer
    undo:  yes
0101_no_note (sql, contract, transaction 3)
    locks: jobs ACCESS EXCLUSIVE, instant; at most 2 s per try
    undo:  no, the values are gone
    afterwards releases older than 0.2.0 refuse to start

A try that does not get its locks is rolled back and repeated, for up to 300 s per step.
Cannot be undone: 0101_no_note."""


async def test_the_plan_shows_locks_their_duration_and_what_cannot_be_undone(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: for the person who decides when to migrate. It changes nothing."""
    contract = steps.read(
        "0101_no_note",
        "-- phase: contract\n-- transactional: yes\n-- locks: jobs ACCESS EXCLUSIVE, instant\n"
        "-- undo: no, the values are gone\n-- runs from: 0.2.0\n\nALTER TABLE sexton.jobs DROP COLUMN note;\n",
    )
    index = index_step("0102_by_task", "CREATE INDEX runs_by_task ON sexton.runs (task)")
    ships(monkeypatch, [EXPAND, index, contract], as_="0.3.0")
    monkeypatch.setattr("sexton.store.migrations.functions.known", list)
    planned = migrations.describe(await migrations.outstanding(database), migrations.PACE)
    assert migrations.as_text(planned, migrations.PACE) == PLAN
    text = await migrations.script(database)
    assert "CREATE INDEX CONCURRENTLY runs_by_task ON sexton.runs (task);" in text
    assert "SET LOCAL lock_timeout = '2s'" in text
    with pytest.raises(SchemaMismatch, match="lacks 0100_colour, 0102_by_task; run: sexton migrate"):
        await migrations.require_current(database)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("-- phase: expand\n-- locks: none\n-- undo: yes", 'no "transactional"'),
        ("-- phase: expand\n-- transactional: yes\n-- locks: none\n-- undo: yes\n-- colour: red", "colour: red"),
        ("-- phase: later\n-- transactional: yes\n-- locks: none\n-- undo: yes", "phase is one of"),
        ("-- phase: expand\n-- transactional: no\n-- locks: none\n-- undo: yes", "kind sql is transactional"),
        ("-- phase: contract\n-- transactional: yes\n-- locks: none\n-- undo: no", 'says "runs from"'),
        ("-- phase: expand\n-- transactional: yes\n-- locks: none\n-- undo: yes\n-- runs from: 0.2.0", 'says "runs from"'),
    ],
)
def test_a_step_declares_how_it_runs(header: str, says: str) -> None:
    """D7: the author has to choose for every step."""
    with pytest.raises(ValueError, match=says):
        steps.read("0100_x", f"{header}\n\nSELECT 1;\n")


async def test_the_examples_of_the_readme_can_be_applied(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the schema begins with a copy of one of them."""
    readme = (Path(steps.__file__).parent / "README.md").read_text()
    examples = [text for text in re.findall(r"```sql\n(.*?)```", readme, re.DOTALL) if text.startswith("-- phase:")]
    shipped = [steps.read(f"01{number:02d}_example", text) for number, text in enumerate(examples)]
    assert {step.kind for step in shipped} == {"sql", "index", "backfill"}
    ships(monkeypatch, shipped)
    assert await migrations.migrate(database, pace=CALM) == [step.name for step in shipped]
    await migrations.require_current(database)
