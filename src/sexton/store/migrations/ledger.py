"""The ledger in a database: reads and writes its rows. It decides nothing."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import msgspec

from sexton.store.database import Connection

from .functions import Function
from .release import RELEASE
from .steps import BASELINE, Step

_PREVIOUS = re.compile(r"\((\d+), '(\w+)', '([0-9a-f]{64})'\)")
_HAS = """\
SELECT to_regclass('sexton.schema_steps') IS NOT NULL AS ledger, to_regclass('sexton.migrations') IS NOT NULL AS previous"""
_PREVIOUS_ROWS = "SELECT number, name, checksum FROM sexton.migrations ORDER BY number"
_STEPS = "SELECT name, checksum, state, runs_from, release, cursor, done_count FROM sexton.schema_steps ORDER BY name"
_FUNCTIONS = "SELECT name, checksum, release FROM sexton.schema_functions ORDER BY name, applied_at"
_ADD_STEP = "INSERT INTO sexton.schema_steps (name, checksum, state, runs_from, release, done_at) VALUES ({})"
_BEGIN_STEP = """\
INSERT INTO sexton.schema_steps (name, checksum, state, runs_from, release) VALUES ($1, $2, 'running', $3, $4)
ON CONFLICT (name) DO NOTHING"""
_END_STEP = "UPDATE sexton.schema_steps SET state = 'done', done_at = clock_timestamp() WHERE name = $1 AND state = 'running'"
_ADD_FUNCTION = """\
INSERT INTO sexton.schema_functions (name, checksum, release) VALUES ({})
ON CONFLICT (name, checksum) DO UPDATE SET release = excluded.release, applied_at = clock_timestamp()"""


class StepRow(msgspec.Struct, frozen=True):
    """One of sexton.schema_steps."""

    name: str
    checksum: str
    state: str
    runs_from: str
    release: str
    cursor: str | None
    done_count: int


class FunctionRow(msgspec.Struct, frozen=True):
    """One of sexton.schema_functions."""

    name: str
    checksum: str
    release: str


class Ledger(msgspec.Struct, frozen=True):
    """`previous`: the rows of sexton.migrations, the ledger up to commit 413f5aa; null without that table, and once this ledger
    exists."""

    steps: dict[str, StepRow]
    functions: list[FunctionRow]  # of one name, the newest last
    previous: list[tuple[int, str, str]] | None

    @property
    def is_begun(self) -> bool:
        return bool(self.steps)


def definition() -> str:
    return resources.files(__package__).joinpath("ledger.sql").read_text(encoding="utf-8").strip()


def previous_migrations() -> list[tuple[int, str, str]]:
    """Number, name and checksum of the 21 migrations that the baseline replaces."""
    file = resources.files(__package__).joinpath(f"{BASELINE}80_previous_ledger.sql")
    return [(int(number), name, checksum) for number, name, checksum in _PREVIOUS.findall(file.read_text(encoding="utf-8"))]


async def read(connection: Connection) -> Ledger:
    (has,) = await connection.fetch(_HAS)
    steps = [StepRow(*row) for row in await connection.fetch(_STEPS)] if has["ledger"] else []
    if steps:
        functions = [FunctionRow(*row) for row in await connection.fetch(_FUNCTIONS)]
        return Ledger({step.name: step for step in steps}, functions, None)
    previous = [tuple(row) for row in await connection.fetch(_PREVIOUS_ROWS)] if has["previous"] else None
    return Ledger({}, [], previous)


def step_done(step: Step, state: str = "done") -> str:
    """The statement that records a step which was applied in the same transaction, or found in the database (`adopted`)."""
    values = [step.name, step.checksum, state, step.runs_from, RELEASE]
    return _ADD_STEP.format(f"{_literals(values)}, clock_timestamp()") + ";"


async def begin_step(connection: Connection, step: Step) -> None:
    """A step of several transactions has started, or continues."""
    await connection.fetch(_BEGIN_STEP, step.name, step.checksum, step.runs_from, RELEASE)


async def end_step(connection: Connection, step: Step) -> None:
    await connection.fetch(_END_STEP, step.name)


def function_done(function: Function) -> str:
    return _ADD_FUNCTION.format(_literals([function.name, function.checksum, RELEASE])) + ";"


def _literals(values: list[Any]) -> str:
    """Names, checksums and releases of our own files: none contains a quote."""
    assert not any("'" in value for value in values)  # noqa: S101
    return ", ".join(f"'{value}'" for value in values)
