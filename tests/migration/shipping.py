"""Pretends that this release has more steps, other functions, or another number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sexton.store.migrations import functions, steps
from sexton.store.migrations.migration_lock import Pace
from sexton.store.migrations.steps import Step

if TYPE_CHECKING:
    import pytest

    from sexton.store.migrations.functions import Function

ORIGINAL_STEPS = steps.known()
HASTE = Pace(hold_s=0.3, patience_s=3.0, first_pause_s=0.05, longest_pause_s=0.1, batch_rest_s=0)
CALM = Pace(hold_s=0.5, patience_s=50, first_pause_s=0.05, longest_pause_s=0.1, batch_rest_s=0)


def sql_step(name: str, sql: str, phase: steps.Phase = "expand", runs_from: str = "0.1.0") -> Step:
    return Step(
        name=name,
        sql=sql,
        phase=phase,
        is_transactional=True,
        locks="runs ACCESS EXCLUSIVE, instant",
        undo="yes",
        runs_from=runs_from,
    )


def index_step(name: str, sql: str) -> Step:
    locks = "no reader and no writer"
    return Step(name=name, sql=sql, phase="expand", kind="index", is_transactional=False, locks=locks, undo="yes")


def backfill_step(name: str, sql: str, *, batch: int, total: str = "") -> Step:
    return Step(
        name=name,
        sql=sql,
        phase="migrate",
        kind="backfill",
        is_transactional=False,
        locks="the rows of a batch",
        undo="no, the old values are gone",
        batch=batch,
        total=total,
    )


def ships(
    monkeypatch: pytest.MonkeyPatch,
    more: list[Step] | None = None,
    *,
    made_of: list[Function] | None = None,
    as_: str = "0.1.0",
) -> None:
    """As if this release had these additional steps, these functions, this number."""
    shipped = steps.in_order([*ORIGINAL_STEPS, *(more or [])])
    monkeypatch.setattr(steps, "known", lambda: shipped)
    if made_of is not None:
        monkeypatch.setattr(functions, "known", lambda: made_of)
    for module in ("functions", "ledger", "planning"):
        monkeypatch.setattr(f"sexton.store.migrations.{module}.RELEASE", as_)


async def run_script(connection: Any, text: str) -> None:
    """As psql does: each transaction separately, and each statement outside of them."""
    for part in re.split(r"\n\n(?=BEGIN;|-- \w+: outside a transaction\n)", text):
        statements = [part] if part.startswith("BEGIN;") else re.split(r"(?<=;)\n", part)
        for statement in statements:
            await connection.execute(statement)
