"""B1-B7, C4-C7, F6: many small clusters, each through faults at every statement boundary, each to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from .faults import Fault
from .world import World

ROOT = Path(__file__).parents[2]
FreshDatabases = Callable[[], AbstractAsyncContextManager[str]]
RecordProperty = Callable[[str, object], None]

MUST_BE_REACHED = {str(fault) for fault in Fault if fault is not Fault.NONE} | {
    "DeclaredLost",
    "FiresMissed",
    "LeaseLost",
    "ZonesFollowed",
    "Reconciled",
    "Swept",
    "WorkerLost",
    "cancelled pending",
    "cancelled running",
    "claimed by the second hand",
    "clock set back",
    "clock set forward",
    "crashed",
    "effect rolled back",
    "notified 0 times",
    "notified 2 times",
    "outage briefly",
    "outage past the lease",
    "planner halfway",
    "schedule edit",
    "schedule end",
    "schedule fire",
    "schedule matched fire by fire",
    "schedule pause",
    "schedule resume",
    "scheduler cut off past the lease",
    "scheduler paused past the lease",
    "scheduler upgraded",
    "started again",
    "worker cut off past the lease",
    "worker drained",
    "worker paused past the lease",
}
SWEEP = range(2000, 2040)


async def test_whatever_breaks_nothing_is_lost_and_nothing_is_held_twice(
    fresh_databases: FreshDatabases, simulation_seed: int, record_property: RecordProperty
) -> None:
    async with fresh_databases() as url, World(url, simulation_seed) as world:
        try:
            await world.run()
        except BaseException as error:
            error.add_note("\n".join(world.history[-60:]))
            error.add_note(f"weather: {world.weather}")
            error.add_note(f"replay: make simulate SEEDS={simulation_seed}")
            raise
    record_property("reached", dict(world.journal.seen))


@pytest.mark.timeout(300)
async def test_every_fault_and_every_interesting_state_is_reached(fresh_databases: FreshDatabases) -> None:
    """A search that never gets there proves nothing. It has a sweep of its own, which ends as soon as all were seen, so that
    it says the same whichever seeds and however many processes the tests run with."""
    reached: Counter[str] = Counter()
    for seed in SWEEP:
        async with fresh_databases() as url, World(url, seed) as world:
            await world.run()
        reached.update(world.journal.seen)
        if not MUST_BE_REACHED - reached.keys():
            return
    assert not sorted(MUST_BE_REACHED - reached.keys())


@pytest.mark.parametrize("seed", [7, 8])
async def test_the_same_seed_gives_the_same_history(fresh_databases: FreshDatabases, seed: int) -> None:
    """Here and in another process, which hashes strings differently."""
    async with fresh_databases() as url, World(url, seed) as world:
        await world.run()
    async with fresh_databases() as url:
        command = [sys.executable, "-m", "tests.simulation", url, str(seed)]
        elsewhere = subprocess.run(  # noqa: ASYNC221
            command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "4711"}, check=True, capture_output=True, text=True
        )
    assert elsewhere.stdout.splitlines() == world.history
