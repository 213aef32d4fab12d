"""Settles all the runs of one job that want to live at the same moment: what may start, what waits, what is dropped.

Pure: the caller holds the lock of the partition and has looked (rule 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, assert_never
from uuid import UUID

from .overlap import Live, Overlap, Queue, Replace, Skip, Start, admit, decide


class Settled(NamedTuple):
    start: list[UUID]
    block: list[UUID]
    skip: list[tuple[UUID, str]]  # with the reason
    cancel: list[UUID]  # running ones, asked to stop


def settle(
    policy: Overlap, *, live: Iterable[UUID], queued: Iterable[UUID], due: Iterable[UUID], kept: Collection[UUID] = ()
) -> Settled:
    """`live` from promotion to end; `queued` blocked so far; `due` now, each in order of due time. Those `kept` were asked for
    by a person: they wait their turn where a fire would be skipped, and take nobody's place."""
    running, waiting = list(live), list(queued)
    settled = Settled([], [], [], [])
    blocked: list[UUID] = []

    def take_in() -> None:
        for run_id in admit(policy, Live(running, waiting)):
            waiting.remove(run_id)
            running.append(run_id)
            settled.start.append(run_id)
            if run_id in blocked:
                blocked.remove(run_id)

    take_in()
    for run_id in due:
        decision = decide(policy, Live(running, waiting))
        match decision:
            case Start():
                running.append(run_id)
                settled.start.append(run_id)
            case Queue() | Skip() | Replace() if run_id in kept or isinstance(decision, Queue):
                waiting.append(run_id)
                blocked.append(run_id)
            case Skip(reason, blocker):
                settled.skip.append((run_id, f"{reason}: {blocker}"))
            case Replace(cancel, drop):
                settled.cancel.extend(one for one in cancel if one not in settled.cancel)
                dropped = [one for one in drop if one not in kept]
                settled.skip.extend((one, f"replaced by the next fire: {run_id}") for one in dropped)
                blocked = [*(one for one in blocked if one not in dropped), run_id]
                waiting = [*(one for one in waiting if one not in dropped), run_id]
            case _:
                assert_never(decision)
    settled.block.extend(blocked)
    return settled
