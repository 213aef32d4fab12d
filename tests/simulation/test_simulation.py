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

from sexton.clock import host_now

from .faults import Fault
from .world import World

pytestmark = pytest.mark.timeout(300)  # a life takes three seconds, and ten times that where a machine is shared

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
    "claim ahead of its marks only",
    "claimed by the second hand",
    "clock set back",
    "clock set forward",
    "crashed",
    "effect rolled back",
    "clock of a node set",
    "connection dropped inside a transaction",
    "contention overcome",
    "job edit",
    "job pause",
    "jobs resumed",
    "leader with locks paused past the lease",
    "let go on",
    "let through by promoter",
    "let through by reporter",
    "limit full",
    "limit kept, for runs wait for it",
    "limit lowered while full",
    "limit removed",
    "limit set",
    "notified late",
    "notified lost",
    "notified twice",
    "ordered key waited",
    "outage briefly",
    "outage past the lease",
    "parked",
    "planner halfway",
    "queue paused",
    "rate spent",
    "result that cannot be kept",
    "schedule edit",
    "schedule end",
    "schedule fire",
    "schedule matched fire by fire",
    "schedule pause",
    "schedule resume",
    "scheduler cut off past the lease",
    "scheduler paused past the lease",
    "scheduler upgraded",
    "slot freed by handler",
    "slot freed by heartbeat",
    "slot freed by reporter",
    "slot freed by sweeper",
    "started again",
    "tenant full",
    "tenant paused",
    "tenant set",
    "worker cut off past the lease",
    "worker drained",
    "worker paused past the lease",
}
# The first four see everything today; the others are for what a change of the code moves elsewhere.
SWEEP = (2041, 2003, 2034, 2042, 2010, 2005, 2002, 2014, 2016, *range(2020, 2034), *range(2035, 2041), *range(2043, 2050))
# Seeds that failed once. A change of the code may lead them elsewhere: what they found has tests of its own besides.
FOUND = {
    135: "a blocked run of older time zone data holds its wall time (the checker erred)",
    270: "a replay of an exclusive version waits for its like",
    368: "so it does when the version was edited in between",
}
# Others every day, the same in every process of a day.
FRESH = [host_now().toordinal() * 10 + n for n in range(2)]


async def live(fresh_databases: FreshDatabases, seed: int, record_property: RecordProperty) -> Counter[str]:
    """One life; answers with what it went through."""
    record_property("seed", seed)
    async with fresh_databases() as url, World(url, seed) as world:
        try:
            await world.run()
        except BaseException as error:
            record_property("violation", str(error))
            error.add_note("\n".join(world.history[-60:]))
            error.add_note(f"fault_profile: {world.fault_profile}")
            error.add_note(f"replay: make simulate SEEDS={seed}-{seed}")
            raise
        finally:
            record_property("steps", world.step_count)
    record_property("reached", dict(world.journal.seen))
    return world.journal.seen


async def test_whatever_breaks_nothing_is_lost_and_nothing_is_held_twice(
    fresh_databases: FreshDatabases, simulation_seed: int, record_property: RecordProperty
) -> None:
    await live(fresh_databases, simulation_seed, record_property)


@pytest.mark.parametrize("seed", FOUND, ids=[f"{seed}: {what}" for seed, what in FOUND.items()])
async def test_what_was_found_stays_mended(fresh_databases: FreshDatabases, seed: int, record_property: RecordProperty) -> None:
    await live(fresh_databases, seed, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("fresh_seed", FRESH)
async def test_the_seeds_of_today_hold_as_well(
    fresh_databases: FreshDatabases, fresh_seed: int, record_property: RecordProperty
) -> None:
    await live(fresh_databases, fresh_seed, record_property)


@pytest.mark.timeout(600)
async def test_every_fault_and_every_interesting_state_is_reached(fresh_databases: FreshDatabases) -> None:
    """A search that never gets there proves nothing. It has a sweep of its own, which ends as soon as all were seen, so that
    it says the same whichever seeds and however many processes the tests run with."""
    reached: Counter[str] = Counter()
    for seed in SWEEP:
        reached.update(await live(fresh_databases, seed, lambda _name, _value: None))
        if not missing(reached):
            return
    assert not missing(reached)


def missing(reached: Counter[str]) -> list[str]:
    return sorted(what for what in MUST_BE_REACHED if not reached[what])


@pytest.mark.parametrize("seed", [7, pytest.param(8, marks=pytest.mark.nightly)])
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
