"""What happens to a due fire while an earlier run of the same job is still alive. Pure: the caller has locked the job and read
its runs (rule "lock, then decide"). A run is running from its promotion to its end, retry waits and snoozes included. It is
queued while it is blocked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.fault import Invalid

Policy = Literal["skip", "queue", "parallel", "replace"]

MAX_QUEUED = 10
MAX_PARALLEL = 10
_LIMIT = 10_000


class Overlap(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    policy: Policy = "skip"
    max_queued: int = MAX_QUEUED  # for `queue`
    max_parallel: int = MAX_PARALLEL  # for `parallel`


class Live(NamedTuple):
    """The live runs of one job, oldest first."""

    running: Sequence[UUID] = ()
    queued: Sequence[UUID] = ()


class Start(NamedTuple):
    pass


class Queue(NamedTuple):
    blocker: UUID


class Skip(NamedTuple):
    """The fire will not run. It becomes a row of the ledger."""

    reason: str
    blocker: UUID


class Replace(NamedTuple):
    """Cancel the running runs and drop the queued ones. The fire waits until the cancelled runs have stopped."""

    cancel: tuple[UUID, ...]
    drop: tuple[UUID, ...]


Decision = Start | Queue | Skip | Replace


def overlap(policy: str = "skip", *, max_queued: int = MAX_QUEUED, max_parallel: int = MAX_PARALLEL) -> Overlap:
    """The checked policy; `Invalid` names the field and the fix."""
    for name, value in (("max_queued", max_queued), ("max_parallel", max_parallel)):
        if type(value) is not int or not 1 <= value <= _LIMIT:
            raise Invalid(f"overlap.{name}", f"{value!r} must be between 1 and {_LIMIT:,}")
    match policy:
        case "skip" | "queue" | "parallel" | "replace":
            return Overlap(policy, max_queued, max_parallel)
        case _:
            raise Invalid("overlap", f"{policy!r} is unknown; use skip, queue, parallel or replace")


def decide(policy: Overlap, live: Live) -> Decision:
    """What happens to a fire that is due now."""
    alive = (*live.running, *live.queued)
    if not alive:
        return Start()
    match policy.policy:
        case "skip":
            return Skip("the previous run has not ended", alive[0])
        case "queue":
            if len(live.queued) < policy.max_queued:
                return Queue(alive[0])
            return Skip(f"{len(live.queued)} runs are queued; the limit is {policy.max_queued}", alive[0])
        case "parallel":
            if len(alive) < policy.max_parallel:
                return Start()
            return Skip(f"{len(alive)} runs are alive; the limit is {policy.max_parallel}", alive[0])
        case "replace":
            return Replace(tuple(live.running), tuple(live.queued))


def admit(policy: Overlap, live: Live) -> tuple[UUID, ...]:
    """Which queued runs may start now, oldest first. By rule "look again every pass" this is asked in every pass, so no release
    is lost."""
    free = (policy.max_parallel if policy.policy == "parallel" else 1) - len(live.running)
    return tuple(live.queued[: max(0, free)])
