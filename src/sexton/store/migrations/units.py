"""Cuts a plan into units that are applied as a whole: transactions of SQL, and steps of several transactions."""

from __future__ import annotations

import msgspec

from . import functions as shipped_functions
from . import ledger as ledgers
from .functions import Function
from .planning import Plan
from .steps import BASELINE, Step

# Bodies may name functions that come later in the alphabet.
SETTINGS = "SET LOCAL check_function_bodies = off"


class Transaction(msgspec.Struct, frozen=True):
    """Steps of kind sql, and functions, with the statements that record them: all of it or nothing."""

    titles: list[str]
    statements: list[str]

    @property
    def name(self) -> str:
        return self.titles[0] if len(self.titles) == 1 else f"{self.titles[0]} and {len(self.titles) - 1} more"


Unit = Transaction | Step


def units(plan: Plan) -> list[Unit]:
    """In the order in which they run. Everything that can run in one transaction does. A new database is one transaction,
    because no session waits for its locks and there are no rows to fill in."""
    cut: list[Unit] = []
    titles: list[str] = []
    statements: list[str] = []
    if plan.is_new or plan.adopted:
        statements.append(ledgers.definition())
    if plan.adopted:
        titles.append(f"{BASELINE}* (adopted as the previous release left it)")
        statements += [ledgers.step_done(step, "adopted") for step in plan.adopted]
    for part in _parts(plan):
        if isinstance(part, Step) and not (part.is_transactional or plan.is_new):
            if statements:
                cut.append(Transaction(titles, statements))
                titles, statements = [], []
            cut.append(part)
        else:
            titles += [part.name] if isinstance(part, Step) else [f"function {function.name}" for function in part]
            statements += _step_statements(part) if isinstance(part, Step) else _function_statements(part)
    return [*cut, Transaction(titles, statements)] if statements else cut


def _parts(plan: Plan) -> list[Step | list[Function]]:
    """Functions come after what they need and before what needs them."""
    first: list[Step | list[Function]] = [step for step in plan.steps if step.phase == "expand"]
    then = [step for step in plan.steps if step.phase != "expand"]
    return [*first, *([plan.functions] if plan.functions else []), *then]


def _step_statements(step: Step) -> list[str]:
    what = "" if step.kind == "backfill" else f"\n{step.sql.strip()}"
    return [f"-- {step.name}{what}", ledgers.step_done(step)]


def _function_statements(functions: list[Function]) -> list[str]:
    made = [f"-- function {function.name}\n{function.statement}\n{ledgers.function_done(function)}" for function in functions]
    return [*made, shipped_functions.rights()]


def titles_of(unit: Unit) -> list[str]:
    return unit.titles if isinstance(unit, Transaction) else [unit.name]
