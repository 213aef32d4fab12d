"""Measures how late runs were, and how long each fault had an effect.

A run is delayed from one second after its due time until it is claimed. A run that lost its worker is delayed from the fault
until it is claimed again. The recovery from a fault ends when the last run that it delayed is claimed and submissions over the
SDK and over HTTP are acknowledged again. It counts from the end of the fault, or from its beginning if one process was killed,
stopped or cut off and the others should carry on without it.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from . import poison
from .evidence import Evidence
from .explanation import Explanation
from .fault import Fault
from .faults import OF_A_NEIGHBOUR, REFUSALS
from .judgement import Verdict, by_run
from .load import SERIAL

LATE_S = 1.0
INNOCENT_LAG_S = 5.0
REFUSAL_BACK_S = 5.0


@dataclass(frozen=True)
class Recovery:
    fault: Fault
    work_s: float  # until no run waits that it delayed or cost its worker
    submit_s: float  # until a submission is acknowledged again, over the SDK and over HTTP

    @property
    def seconds(self) -> float:
        return max(self.work_s, self.submit_s)


def recoveries(evidence: Evidence, verdict: Verdict, *, without: Collection[UUID] = ()) -> list[Recovery]:
    """`without`: jobs whose delay does not count."""
    last = {fault.number: fault.since for fault in evidence.faults}
    for fault, claimed_at in _troubles(evidence, verdict, without):
        last[fault.number] = max(last[fault.number], claimed_at)
    return [Recovery(fault, last[fault.number] - fault.since, _submit_s(evidence, fault)) for fault in evidence.faults]


def _troubles(evidence: Evidence, verdict: Verdict, without: Collection[UUID]) -> Iterator[tuple[Fault, float]]:
    """The fault behind each delayed run, and when that run was claimed."""
    explained = {(each.tried.run_id, each.tried.token): each for each in verdict.repetitions}
    faults = sorted(evidence.faults, key=lambda fault: fault.began_at)
    beginnings = [fault.began_at for fault in faults]
    for run in by_run(evidence.tries):
        first = run[0]
        if first.job_id in without:
            continue
        if first.claimed_at - first.due_at > LATE_S:
            index = bisect_right(beginnings, first.due_at + LATE_S)
            if index:
                yield faults[index - 1], first.claimed_at
        for earlier, later in pairwise(run):
            why: Explanation | None = explained.get((earlier.run_id, earlier.token))
            if why is not None and why.fault is not None and why.fault.number:
                yield why.fault, later.claimed_at


def _submit_s(evidence: Evidence, fault: Fault) -> float:
    waits = []
    for way in ("sdk", "http"):
        times = sorted(each.at for each in evidence.submissions.acknowledged if each.way == way)
        after = bisect_right(times, fault.since)
        if after < len(times):
            waits.append(times[after] - fault.since)
    return max(waits, default=0.0)


def by_kind(found: Sequence[Recovery]) -> dict[str, dict[str, float]]:
    kinds: defaultdict[str, list[float]] = defaultdict(list)
    for each in found:
        kinds[each.fault.kind].append(each.seconds)
    return {
        kind: {"count": len(times), "median_s": round(statistics.median(times), 2), "max_s": round(max(times), 2)}
        for kind, times in sorted(kinds.items())
    }


def broken_promises(evidence: Evidence, verdict: Verdict, *, slots: int) -> list[str]:
    """A bad neighbour may delay only the jobs that it holds: for each tenant the lag of its other jobs counts. A run that takes
    down its workers is buried alone, and services must work again soon after a database accepts writes again. `slots`: of one
    worker."""
    # These wait for each other: after an outage their backlog drains only as fast as the limit or the overlap policy allows.
    limited = {job for kind in ("limited", *SERIAL) for job in evidence.submissions.ids(kind)}
    found = [
        f"{fault.kind} ({fault.note}): the lag of the other jobs of tenant {tenant} was {lag_s:.1f} s at p99"
        for fault in evidence.faults
        if fault.kind in OF_A_NEIGHBOUR
        for tenant, lag_s in _lags_by_tenant(evidence, fault, fault.harmed | limited).items()
        if lag_s > INNOCENT_LAG_S
    ]
    found += poison.broken_promises(evidence, slots=slots, without=limited | set(evidence.queueing))
    found += [
        f"{each.fault.kind} ({each.fault.note}): work went on {each.seconds:.1f} s after its end"
        for each in recoveries(evidence, verdict, without=limited | set(evidence.queueing))
        if each.fault.kind in REFUSALS and each.seconds > REFUSAL_BACK_S
    ]
    return found


def _lags_by_tenant(evidence: Evidence, fault: Fault, without: Collection[UUID]) -> dict[str, float]:
    """At p99, of the runs that were due during the fault."""
    tenants: defaultdict[str, list[float]] = defaultdict(list)
    for run in by_run(evidence.tries):
        first = run[0]
        if fault.began_at <= first.due_at <= fault.ended_at and first.job_id not in without:
            tenants[first.tenant].append(first.claimed_at - first.due_at)
    return {tenant: p99(lags) for tenant, lags in sorted(tenants.items())}


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))] if values else 0.0


def lags(evidence: Evidence) -> list[tuple[float, float]]:
    """For each run: when its handler first began (monotonic), and how late that was."""
    began: dict[object, float] = {}
    for line in evidence.lines:
        if line.what == "start":
            began.setdefault(line.run_id, line.at)
    return sorted(
        (began[run[0].run_id], max(0.0, began[run[0].run_id] - run[0].due_at))
        for run in by_run(evidence.tries)
        if run[0].run_id in began
    )


def calm(found: Sequence[tuple[float, float]], recovered: Sequence[Recovery]) -> list[tuple[float, float]]:
    """The runs that began while no fault had an effect."""
    felt = [(each.fault.began_at, max(each.fault.ended_at, each.fault.since + each.seconds)) for each in recovered]
    return [(at, lag) for at, lag in found if not any(begin <= at <= end for begin, end in felt)]


def distribution(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "count": len(ordered),
        **{
            f"p{share:g}_s": round(ordered[min(len(ordered) - 1, int(share / 100 * len(ordered)))], 4)
            for share in (50, 90, 99, 99.9)
        },
        "max_s": round(ordered[-1], 3),
    }
