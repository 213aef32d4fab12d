"""The named statements: each is valid SQL, and each has exactly one caller, in the module next to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sexton.store
from sexton.store.sql import statements

if TYPE_CHECKING:
    from tests.store.support import Conn

STORE = Path(sexton.store.__file__).parent
# Statements beside a module; functions and migrations belong to the schema.
MODULES = sorted(path for path in STORE.rglob("*.py") if path.with_suffix(".sql").exists())
NOUNS = [".".join(("sexton.store", *path.relative_to(STORE).with_suffix("").parts)) for path in MODULES]
NAMED = [(noun, name) for noun in NOUNS for name in statements(noun)]
USE = re.compile(r'_SQL\["(\w+)"\]')


@pytest.mark.parametrize("noun", NOUNS)
async def test_every_statement_can_be_prepared(connection: Conn, noun: str) -> None:
    """D7: a column renamed in a migration is found by this test and not in production."""
    for name, sql in statements(noun).items():
        prepared = await connection.prepare(sql)
        assert prepared is not None, name


@pytest.mark.parametrize("noun", NOUNS)
def test_every_statement_has_one_caller_in_the_module_beside_it(noun: str) -> None:
    """So a change of a statement affects one caller."""
    used = USE.findall(MODULES[NOUNS.index(noun)].read_text())
    assert sorted(used) == sorted(statements(noun))


def test_no_module_reads_the_statements_of_another() -> None:
    """SQL lives next to the module that calls it."""
    for module in STORE.parent.rglob("*.py"):
        for named in re.findall(r"_SQL = statements\(([^)]+)\)", module.read_text()):
            assert named == "__name__" or module == STORE / "sql.py"


@pytest.mark.parametrize(("noun", "name"), [pair for pair in NAMED if "clock_timestamp()" in statements(pair[0])[pair[1]]])
def test_every_statement_that_asks_for_the_time_takes_it_as_an_argument(noun: str, name: str) -> None:
    """B9, rule "one clock reading per statement": once per statement, and tests can set it. Adoption uses the real time."""
    sql = re.sub(r"--.*", "", statements(noun)[name])
    if (noun, name) == ("sexton.store.fleet.cluster", "adopt"):
        return
    assert sql.count("clock_timestamp()") == 1
    assert re.search(r"coalesce\((r\.cancel_requested_at, )?\$\d::timestamptz, clock_timestamp\(\)\)", sql)


def test_nothing_but_clock_timestamp_reads_the_clock() -> None:
    """B9: now() and current_timestamp are the start of the transaction, which may be long ago."""
    texts = [path.read_text() for path in STORE.rglob("*.sql")]
    code = "\n".join(re.sub(r"--.*", "", text) for text in texts)
    assert (
        re.findall(
            r"\b(?:now|statement_timestamp|transaction_timestamp)\(\)|current_timestamp|localtimestamp", code, re.IGNORECASE
        )
        == []
    )


def test_a_duplicate_name_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One name, one statement."""
    (tmp_path / "twice.sql").write_text("-- name: x\nSELECT 1\n-- name: x\nSELECT 2\n")
    monkeypatch.setattr("sexton.store.sql.resources.files", lambda _package: tmp_path)
    with pytest.raises(ValueError, match="twice"):
        statements("sexton.store.twice")
