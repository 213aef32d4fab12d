"""Decides about all runs of one job that are alive or due at the same time: which start, which wait, which are dropped.

Pure: the caller holds the lock of the partition and has read the runs (rule "lock, then decide")."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, assert_never
from uuid import UUID

from .overlap import Live, Overlap, Queue, Replace, Skip, Start, admit, decide


class Settled(NamedTuple):
    start: list[UUID]
    block: list[UUID]
    skip: list[tuple[UUID, str]]  # with the reason
    cancel: list[UUID]  # running runs that are asked to stop


def settle(
    policy: Overlap,
    *,
    live: Sequence[UUID],
    queued: Sequence[UUID],
    due: Sequence[UUID],
    kept: Collection[UUID] = (),
    backfill: Collection[UUID] = (),
    alone: Collection[UUID] = (),
) -> Settled:
    """`live` runs are between promotion and end, `queued` runs are blocked, `due` runs are due now; each in order of due time.
    A user asked for the `kept` runs: they wait where a fire would be skipped, and they replace no other run.

    Fires are decided as if there were no `backfill`. A backfill never drops a fire: the fire waits for the live run of the
    backfill to end and goes before the rest. Of the `alone` runs only one is live at a time, under every policy."""
    beside = [one for one in live if one in backfill]
    running, waiting = [one for one in live if one not in backfill], [one for one in queued if one not in backfill]
    settled = Settled([], [], [], [])
    blocked: list[UUID] = []

    for run_id in admit(policy, Live([*beside, *running], waiting)):
        waiting.remove(run_id)
        running.append(run_id)
        settled.start.append(run_id)
    for run_id in (one for one in due if one not in backfill):
        held = admit(policy, Live(running, waiting))  # without the backfill, these would be running
        decision = decide(policy, Live([*running, *held], [one for one in waiting if one not in held]))
        match decision:
            case Start() if len(admit(policy, Live([*beside, *running], [*waiting, run_id]))) <= len(waiting):
                waiting.append(run_id)
                blocked.append(run_id)
            case Start():
                running.append(run_id)
                settled.start.append(run_id)
            case Queue() | Skip() | Replace() if run_id in kept or isinstance(decision, Queue):
                waiting.append(run_id)
                blocked.append(run_id)
            case Skip(reason, blocker):
                settled.skip.append((run_id, f"{reason}: {blocker}"))
            case Replace(cancel, drop):
                settled.cancel.extend(one for one in cancel if one not in settled.cancel and one not in held)
                dropped = [one for one in (*held, *drop) if one not in kept]
                settled.skip.extend((one, f"replaced by the next fire: {run_id}") for one in dropped)
                blocked = [*(one for one in blocked if one not in dropped), run_id]
                waiting = [*(one for one in waiting if one not in dropped), run_id]
            case _:
                assert_never(decision)
    left = [one for one in [*queued, *due] if one in backfill]
    begun = [] if waiting else _begun(policy, [*running, *beside], left, alone)
    settled.start.extend(begun)
    settled.block.extend([*blocked, *(one for one in left if one in due and one not in begun)])
    return settled


def _begun(policy: Overlap, live: Sequence[UUID], waiting: Sequence[UUID], alone: Collection[UUID]) -> list[UUID]:
    """The runs of a backfill that may start, oldest first."""
    begun: list[UUID] = []
    for run_id in waiting:
        if not admit(policy, Live([*live, *begun], [run_id])):
            break
        if run_id not in alone or not any(one in alone for one in [*live, *begun]):
            begun.append(run_id)
    return begun
