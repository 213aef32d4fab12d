"""How late things were, and how long each fault was felt.

A run is in trouble from the moment it is more than a second overdue until it is claimed; a run that lost its worker, from the
fault that cost it until it is claimed again. A fault has been recovered from when the last run that it brought into trouble is
claimed, and submissions over both ways are acknowledged again. The time counts from the fault's end; from its beginning where
one process was killed, stopped or cut off and the others should carry on without it.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .evidence import Evidence
from .explanation import Explanation
from .fault import Fault
from .judgement import Verdict, by_run

LATE_S = 1.0
NEVER = float("inf")


@dataclass(frozen=True)
class Recovery:
    fault: Fault
    work_s: float  # until nothing that it delayed or cost waits any more
    submit_s: float  # until a submission is acknowledged again, over either way

    @property
    def seconds(self) -> float:
        return max(self.work_s, self.submit_s)


def recoveries(evidence: Evidence, verdict: Verdict) -> list[Recovery]:
    last = {fault.number: fault.since for fault in evidence.faults}
    for fault, claimed_at in _troubles(evidence, verdict):
        last[fault.number] = max(last[fault.number], claimed_at)
    return [Recovery(fault, last[fault.number] - fault.since, _submit_s(evidence, fault)) for fault in evidence.faults]


def _troubles(evidence: Evidence, verdict: Verdict) -> Iterator[tuple[Fault, float]]:
    """The fault behind each trouble, and when that was over."""
    explained = {(each.tried.run_id, each.tried.token): each for each in verdict.repetitions}
    faults = sorted(evidence.faults, key=lambda fault: fault.began_at)
    beginnings = [fault.began_at for fault in faults]
    for run in by_run(evidence.tries):
        first = run[0]
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


def lags(evidence: Evidence) -> list[tuple[float, float]]:
    """Of each run: when its handler first began (monotonic), and how late that was."""
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
    """Those that began while no fault was felt."""
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
