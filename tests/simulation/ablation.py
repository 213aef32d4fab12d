"""Removes a safeguard and runs seeds until one of them shows the harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import asyncpg

from sexton.errors import SextonError

from .invariants import Violation
from .world import World

FreshDatabases = Callable[[], AbstractAsyncContextManager[str]]
Prepare = Callable[[World], Awaitable[None]]
BUDGET = 60  # number of seeds
FIRST_SEED, SEED_COUNT = 1000, 2  # of a search without pinned seeds: the first seed, and how many seeds must show the harm


class Caught:
    """Where the harm was seen, for the report of the running test."""

    told: Callable[[str, object], None] = staticmethod(lambda _name, _value: None)
    has_pinned_seeds = True


async def found(harm: str, databases: FreshDatabases, prepare: Prepare | None = None, *, first_seed: int = FIRST_SEED) -> bool:
    """Runs seeds until one breaks the invariant of that name; a safeguard may protect several. `first_seed` is pinned to a seed
    that shows the harm today, which only saves time: a harm shows in one of two to eight seeds. `--nightly` searches from the
    same seed for all ablations, until two seeds have shown it."""
    Caught.told("ablation", harm)
    first_seed, missing_count = (first_seed, 1) if Caught.has_pinned_seeds else (FIRST_SEED, SEED_COUNT)
    for seed in range(first_seed, first_seed + BUDGET):
        async with databases() as url, World(url, seed) as world:
            # Only the ablations of their own rules turn these on.
            world.open_transactions.is_on = world.sessions.is_on = False
            if prepare is not None:
                await prepare(world)
            try:
                await world.run()
            except (Violation, asyncpg.PostgresError, SextonError) as violation:
                missing_count -= harm in str(violation)
                if not missing_count:
                    Caught.told("caught", (harm, seed))
                    return True
    return False


async def rewrite(world: World, function: str, *removed: tuple[str, str]) -> None:
    """Removes a safeguard from a function of the database."""
    (row,) = await world.observer.fetch(f"SELECT pg_get_functiondef('sexton.{function}'::regproc) AS body")
    body = row["body"]
    for before, after in removed:
        assert before in body, f"the safeguard is not where this test takes it away: {before}"
        body = body.replace(before, after)
    await world.observer.execute(body)
