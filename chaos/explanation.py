"""Finds the fault that explains why a try began and did not finish, by time and by member. A try without an explanation is a
defect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .evidence import Evidence, Tried
from .fault import Fault

BY_DESIGN = "the task fails its first attempt"
# A silent worker is dead after its lease. A worker that lost its connection is back after a few tries to connect.
BACK_S = 8.0


class Explanation(NamedTuple):
    tried: Tried
    why: str  # the kind of the fault, or BY_DESIGN
    fault: Fault | None


def explain(tried: Tried, evidence: Evidence, *, lease_s: float) -> Explanation | None:
    """Returns `None` if nothing explains this try."""
    if tried.status == "failed" and tried.task == "flaky" and tried.attempt == 1:
        return Explanation(tried, BY_DESIGN, None)
    member, within_s = evidence.member_of(tried.worker_id), lease_s + BACK_S
    fault = culprit(tried, member, evidence.faults, within_s=within_s) or culprit(
        tried, member, evidence.stalls, within_s=within_s
    )
    return None if fault is None else Explanation(tried, fault.kind, fault)


def culprit(tried: Tried, member: str | None, faults: Sequence[Fault], *, within_s: float) -> Fault | None:
    """The last fault that hit this worker, the database or the job, during the try or shortly before it."""
    for fault in sorted(faults, key=lambda fault: fault.began_at, reverse=True):
        hit = not fault.members or member in fault.members
        explains = fault.explains or tried.job_id in fault.harmed
        if explains and hit and fault.began_at <= tried.recorded_at and tried.claimed_at <= fault.ended_at + within_s:
            return fault
    return None
