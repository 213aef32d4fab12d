"""Which fault explains that something was begun and not finished, by time and by member. What no fault explains is a defect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .evidence import Evidence, Tried
from .fault import Fault

BY_DESIGN = "the task fails its first attempt"
# A silent worker is dead after its lease; whoever was cut off comes back within a few tries to connect.
BACK_S = 8.0


class Explanation(NamedTuple):
    tried: Tried
    why: str  # the kind of fault, or BY_DESIGN
    fault: Fault | None


def explain(tried: Tried, evidence: Evidence, *, lease_s: float) -> Explanation | None:
    """`None`: nothing does."""
    if tried.status == "failed" and tried.task == "flaky" and tried.attempt == 1:
        return Explanation(tried, BY_DESIGN, None)
    member, within_s = evidence.member_of(tried.worker_id), lease_s + BACK_S
    fault = culprit(tried, member, evidence.faults, within_s=within_s) or culprit(
        tried, member, evidence.stalls, within_s=within_s
    )
    return None if fault is None else Explanation(tried, fault.kind, fault)


def culprit(tried: Tried, member: str | None, faults: Sequence[Fault], *, within_s: float) -> Fault | None:
    """The last fault that hit this worker, or the database, while the try was under way or shortly before."""
    for fault in sorted(faults, key=lambda fault: fault.began_at, reverse=True):
        hit = not fault.members or member in fault.members
        if fault.explains and hit and fault.began_at <= tried.recorded_at and tried.claimed_at <= fault.ended_at + within_s:
            return fault
    return None
