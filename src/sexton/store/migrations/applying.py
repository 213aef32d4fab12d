"""Applies what a plan says, from many nodes at once and through a pooler: a transaction-level advisory lock lets one in."""

from __future__ import annotations

from sexton.store.database import Postgres

from . import functions as shipped_functions
from . import ledger as ledgers
from . import planning
from .functions import Function
from .planning import Plan
from .steps import BASELINE, PHASES

_PATIENCE_S = 3600.0  # for another node's migration as for our own
_LOCK = "SELECT pg_advisory_xact_lock(7307, 0)"
# Bodies may name functions that come later in the alphabet.
_SETTINGS = "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SET LOCAL check_function_bodies = off"


async def migrate(database: Postgres) -> list[str]:
    """Brings the schema up to date and answers with the titles of what it applied."""
    async with database.transaction() as connection:
        await connection.execute(_SETTINGS)
        await connection.execute(_LOCK, timeout_s=_PATIENCE_S)
        plan = planning.plan(await ledgers.read(connection))
        for statement in statements(plan):
            await connection.execute(statement, timeout_s=_PATIENCE_S)
        return titles(plan)


async def script(database: Postgres) -> str:
    """What `migrate` would run, as one SQL text to read or to hand to a database administrator."""
    async with database.transaction() as connection:
        plan = planning.plan(await ledgers.read(connection))
    if plan.is_empty:
        return ""
    return "\n\n".join(["BEGIN;", f"{_LOCK};", f"{_SETTINGS};", *statements(plan), "COMMIT;"])


async def require_current(database: Postgres) -> None:
    """Refuses a schema that this release cannot run on, and says what to do."""
    async with database.transaction() as connection:
        planning.require(await ledgers.read(connection))


def titles(plan: Plan) -> list[str]:
    adopted = [f"{BASELINE}* (adopted as the previous release left it)"] if plan.adopted else []
    steps = adopted + [step.name for step in plan.steps]
    return steps + [f"function {function.name}" for function in plan.functions]


def summary(applied: list[str]) -> list[str]:
    """For people: more than five functions are one line."""
    functions = [title for title in applied if title.startswith("function ")]
    if len(functions) <= 5:
        return applied
    return [title for title in applied if title not in functions] + [f"{len(functions)} functions"]


def statements(plan: Plan) -> list[str]:
    """All of a plan as SQL, in order: each with the statement that records it."""
    if plan.is_empty:
        return []
    parts = [ledgers.definition()]
    parts += [ledgers.step_done(step, "adopted") for step in plan.adopted]
    for phase in PHASES:
        for step in plan.steps:
            if step.phase == phase:
                parts += [f"-- {step.name}\n{step.sql.strip()}", ledgers.step_done(step)]
        if phase == "expand":
            parts += _function_statements(plan.functions)
    return parts


def _function_statements(functions: list[Function]) -> list[str]:
    if not functions:
        return []
    made = [f"-- function {function.name}\n{function.statement}\n{ledgers.function_done(function)}" for function in functions]
    return [*made, shipped_functions.rights()]
