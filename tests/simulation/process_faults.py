"""Faults of processes, not of single statements: pauses, partitions, drains; and clocks that are set."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from .actors import SETTINGS, Actor, SchedulerActor, WorkerActor

if TYPE_CHECKING:
    from .world import World

KINDS = {"pause": 4, "leader pause": 1, "partition": 3, "outage": 2, "drain": 1, "node clock": 1, "clock": 1}


def make(world: World) -> None:
    rng, fault_profile, now_s = world.rng, world.fault_profile, world.clock.monotonic()
    span_s = rng.choice(fault_profile.process_fault_s)
    until_s = now_s + span_s
    how_long = "past the lease" if span_s > SETTINGS.lease_s else "briefly"
    kinds = KINDS | {"clock": int(fault_profile.clock_is_set)} if fault_profile.only is None else {fault_profile.only: 1}
    match rng.choices(list(kinds), weights=list(kinds.values()))[0]:
        case "pause":
            victim = _victim(world)
            victim.pause(until_s)
            what, whom = f"{victim.kind} paused {how_long}", victim.name
        case "leader pause":
            leader = _leader(world)
            leader.pause(until_s)
            holds_locks = bool(world.locks.held_by(leader))
            what, whom = f"leader {'with locks ' if holds_locks else ''}paused {how_long}", leader.name
        case "partition":
            victim = _victim(world)
            victim.cut_off(now_s, until_s)
            what, whom = f"{victim.kind} cut off {how_long}", victim.name
        case "outage":
            world.break_off(until_s)
            what, whom = f"outage {how_long}", "all"
        case "drain":
            worker = rng.choice(world.live_workers())
            worker.drain()
            what, whom = "worker drained", worker.name
        case "node clock":
            victim = _victim(world)
            assert victim.clock is not None
            victim.clock.wrong_by += timedelta(seconds=rng.choice([1, -1]) * 100 * span_s)
            what, whom = "clock of a node set", victim.name
        case _:
            sign = rng.choice([1, -1])
            world.set_clock(timedelta(seconds=sign * span_s))
            what, whom = f"clock set {'forward' if sign > 0 else 'back'}", "the database"
    world.journal.seen[what] += 1
    world.note(f"PROCESS FAULT {what}, {span_s:g} s: {whom}")


def _victim(world: World) -> Actor:
    """A process without a fault, if there is one: two faults at once excuse more than either of them."""
    nodes = [actor for actor in world.actors if isinstance(actor, SchedulerActor | WorkerActor)]
    now = world.clock.monotonic()
    well = [actor for actor in nodes if not actor.is_paused and actor.partitioned_until_s <= now] or nodes
    busy = [actor for actor in well if isinstance(actor, WorkerActor) and actor.executing_count]
    if busy and world.rng.random() < world.fault_profile.aim:
        return world.rng.choice(busy)
    return world.rng.choice(well)


def _leader(world: World) -> SchedulerActor:
    """The scheduler that leads most partitions."""
    schedulers = [actor for actor in world.actors if isinstance(actor, SchedulerActor)]
    return max(schedulers, key=lambda one: len(one.leadership.partitions))
