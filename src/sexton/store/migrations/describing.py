"""A plan for people and programs: the steps, how long each may lock which table, and which cannot be undone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from sexton.domain.wording import counted

from .migration_lock import Pace
from .planning import Plan
from .steps import BASELINE, Step
from .units import Transaction, units


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # sql, index, backfill, functions, adopted
    phase: str
    transaction: int | None  # steps with the same number are applied together or not at all; null: in several transactions
    locks: str
    longest_lock_s: float | None  # of one try, including the wait; null: no table in use is locked against readers or writers
    undo: str
    runs_from: str | None = None  # afterwards, only this release and newer ones can run
    functions: list[str] = []


def describe(plan: Plan, pace: Pace) -> list[Planned]:
    return list(_planned(plan, pace))


def _planned(plan: Plan, pace: Pace) -> Iterator[Planned]:
    steps = {step.name: step for step in plan.steps}
    for number, unit in enumerate(units(plan), 1):
        if isinstance(unit, Step):
            yield _step(unit, None, None if unit.kind == "index" else pace.hold_s)
            continue
        yield from _transaction(plan, steps, unit, number, None if plan.is_new else pace.hold_s)


def _transaction(
    plan: Plan, steps: dict[str, Step], unit: Transaction, number: int, longest_lock_s: float | None
) -> Iterator[Planned]:
    names = [function.name for function in plan.functions]
    has_functions = False
    for title in unit.titles:
        if title in steps:
            yield _step(steps[title], number, longest_lock_s)
        elif title.startswith(BASELINE):
            undo = "not needed, the previous release continues to work"
            yield _lockless(
                name=title, kind="adopted", phase="expand", transaction=number, locks="none, nothing changes", undo=undo
            )
        elif not has_functions:
            has_functions = True
            name = counted(len(names), "function")
            undo = "not needed, the last release calls the new bodies too"
            yield _lockless(
                name=name, kind="functions", phase="migrate", transaction=number, locks="no table", undo=undo, functions=names
            )


_lockless = partial(Planned, longest_lock_s=None)


def _step(step: Step, transaction: int | None, longest_lock_s: float | None) -> Planned:
    return Planned(
        name=step.name,
        kind=step.kind,
        phase=step.phase,
        transaction=transaction,
        locks=step.locks,
        longest_lock_s=longest_lock_s,
        undo=step.undo,
        runs_from=step.runs_from if step.phase == "contract" else None,
    )


def as_text(planned: list[Planned], pace: Pace) -> str:
    if not planned:
        return "the schema is current: nothing to do"
    lines = []
    for one in planned:
        together = f"transaction {one.transaction}" if one.transaction is not None else "in several transactions"
        lines.append(f"{one.name} ({one.kind}, {one.phase}, {together})")
        limit = f"; at most {one.longest_lock_s:g} s per try" if one.longest_lock_s is not None else ""
        lines.append(f"    locks: {one.locks}{limit}")
        if one.functions and len(one.functions) <= 5:
            lines.append(f"    functions: {', '.join(one.functions)}")
        lines.append(f"    undo:  {one.undo}")
        if one.runs_from is not None:
            lines.append(f"    afterwards releases older than {one.runs_from} refuse to start")
    irreversible = [one.name for one in planned if one.undo.startswith("no") and not one.undo.startswith("not needed")]
    lines.append("")
    lines.append(f"A try that does not get its locks is rolled back and repeated, for up to {pace.patience_s:g} s per step.")
    lines.append(f"Cannot be undone: {', '.join(irreversible) or 'nothing'}.")
    return "\n".join(lines)
