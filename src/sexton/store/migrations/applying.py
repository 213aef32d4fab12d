"""Applies a plan online: services of the last release continue meanwhile. Any number of nodes may call it at once."""

from __future__ import annotations

from typing import assert_never

from sexton.store.database import Postgres

from . import backfills, indexes, planning
from . import ledger as ledgers
from .advisory_locks import LOCK
from .migration_lock import Pace, migration_lock
from .patience import Patience
from .planning import Plan
from .reports import Tell, untold
from .steps import Step
from .units import SETTINGS, Transaction, titles_of, units

PACE = Pace()
_NEW_DATABASE_S = 3600.0  # no session waits for its locks


async def migrate(database: Postgres, *, tell: Tell = untold, pace: Pace = PACE) -> list[str]:
    """Brings the schema up to date and returns the titles of what it applied."""
    if (await outstanding(database)).is_empty:
        return []
    applied: list[str] = []
    async with migration_lock(database, tell=tell, pace=pace) as lock:
        plan = await outstanding(database)  # another process may have done it while we waited
        patience = Patience(database, lock, tell=tell, pace=pace)
        todo = units(plan)
        for unit in todo:
            if isinstance(unit, Step) and unit.kind == "index":
                indexes.require_direct(unit, database)  # before anything is done
        for unit in todo:
            match unit:
                case Transaction() if plan.is_new:
                    await _apply_new(database, unit)
                case Transaction():
                    await _apply(unit, patience)
                case Step():
                    await _apply_long(unit, patience)
                case _:
                    assert_never(unit)
            applied += titles_of(unit)
    return applied


async def outstanding(database: Postgres) -> Plan:
    async with database.transaction() as connection:
        return planning.plan(await ledgers.read(connection))


async def require_current(database: Postgres) -> None:
    """Rejects a schema that this release cannot run on, and says what to do."""
    async with database.transaction() as connection:
        planning.require(await ledgers.read(connection))


async def script(database: Postgres, *, pace: Pace = PACE) -> str:
    """What `migrate` would run, as one SQL text to read or to give to a database administrator."""
    async with database.transaction() as connection:
        plan = planning.plan(await ledgers.read(connection))
        texts = []
        for unit in units(plan):
            if isinstance(unit, Transaction):
                limit = f"SET LOCAL lock_timeout = '{0 if plan.is_new else pace.hold_s:g}s'"
                texts.append("\n\n".join(["BEGIN;", f"{limit}; {SETTINGS};", f"{LOCK};", *unit.statements, "COMMIT;"]))
            elif unit.kind == "index":
                built = await indexes.script(unit, connection)
                texts.append(f"-- {unit.name}: outside a transaction\n{built}\n{ledgers.step_done(unit)}")
            else:
                texts.append(f"-- {unit.name} changes rows in batches; to apply it, run: sexton migrate")
    return "\n\n".join(texts)


def summary(applied: list[str]) -> list[str]:
    """For people: more than five functions are one line."""
    functions = [title for title in applied if title.startswith("function ")]
    if len(functions) <= 5:
        return applied
    return [title for title in applied if title not in functions] + [f"{len(functions)} functions"]


async def _apply_new(database: Postgres, unit: Transaction) -> None:
    async with database.transaction() as session:
        await session.execute(f"SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; {SETTINGS}")
        for statement in (LOCK, *unit.statements):
            await session.execute(statement, timeout_s=_NEW_DATABASE_S)


async def _apply(unit: Transaction, patience: Patience) -> None:
    async def work() -> None:
        async with patience.transaction() as session:
            # In one round trip, so that the time limit for locks does not include the way to a distant database.
            await session.execute("\n;\n".join([SETTINGS, LOCK, *unit.statements]))

    await patience.insist(unit.name, work)


async def _apply_long(step: Step, patience: Patience) -> None:
    async with patience.database.transaction() as session:
        await ledgers.begin_step(session, step)
    if step.kind == "index":
        await indexes.build(step, patience)
    else:
        await backfills.fill(step, patience)
    async with patience.database.transaction() as session:
        await ledgers.end_step(session, step)
