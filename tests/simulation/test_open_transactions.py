"""B3, C19, rule "never wait inside a batch": transactions are left open on schedules, runs and limits, and there is no other
fault. Rows that they have not locked are planned and promoted on time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sexton.operations.bisection import Divided
from sexton.operations.recurring import due_schedules
from sexton.store.work import schedules

from .ablation import FreshDatabases, found
from .world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sexton.store.database import Connection, Database

pytestmark = pytest.mark.timeout(300)
NEVER_S = 1e9


async def only_open_transactions(world: World) -> None:
    """No other fault, and no newer time zone data, for which planners with older data stop planning."""
    world.fault_profile = replace(world.fault_profile, fault_rate=0.0, process_fault_rate=0.0)
    world.halt_rate, world.upgrades_s = 0.0, [NEVER_S, NEVER_S]
    world.open_transactions.is_on = world.open_transactions.judges = True


async def only_on_schedules(world: World) -> None:
    await only_open_transactions(world)
    world.open_transactions.kinds, world.open_transactions.hold_s = ("schedule",), (25.0, 40.0)


@pytest.mark.parametrize("seed", [3, pytest.param(5, marks=pytest.mark.nightly)])
async def test_rows_that_no_open_transaction_has_locked_are_on_time(fresh_databases: FreshDatabases, seed: int) -> None:
    async with fresh_databases() as url, World(url, seed) as world:
        await only_open_transactions(world)
        await world.run()
    assert sum(world.journal.seen[f"{kind} held by an open transaction"] for kind in ("schedule", "run", "limit")) >= 3


@pytest.mark.nightly  # tests/scheduler/test_locked_rows.py removes the same safeguard in a second
async def test_without_passing_over_locked_rows_an_open_transaction_delays_all(
    fresh_databases: FreshDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch waits, and is not divided."""

    async def whole(
        database: Database, batch: Sequence[Any], write: Callable[[Connection, Sequence[Any]], Awaitable[Any]]
    ) -> Divided[Any, Any]:
        async with database.connection() as connection:
            return Divided([await write(connection, batch)], [])

    usual = schedules._SQL["plan"]
    assert usual.count(" SKIP LOCKED") == 1
    monkeypatch.setitem(schedules._SQL, "plan", usual.replace(" SKIP LOCKED", ""))
    monkeypatch.setattr(due_schedules, "in_parts", whole)
    assert await found("an open transaction delays no other", fresh_databases, only_on_schedules)
