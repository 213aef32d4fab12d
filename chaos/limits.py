"""Counts how many runs of a limited kind executed at the same time, by the handlers' journal.

A lease holds a slot. A worker that goes on after it lost the lease (stopped by SIGSTOP, or cut off) holds no slot, though its
handler still runs. Such a stretch is counted separately, and the fault that cost the lease explains it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.process import trace

from .evidence import Evidence, Tried

SLACK_S = 0.5  # a handler begins after its claim, on one clock; the database's clock is read at a slightly different moment


@dataclass
class LimitFindings:
    slots: int
    executed_count: int
    most_at_once: int  # under a live lease
    beyond_lease_count: int  # handlers that went on after their lease was lost


def judge(evidence: Evidence, jobs: Collection[UUID], slots: int) -> LimitFindings:
    tries: defaultdict[UUID, list[Tried]] = defaultdict(list)
    for tried in evidence.tries:
        if tried.job_id in jobs:
            tries[tried.job_id].append(tried)
    spans = trace.spans(evidence.lines, evidence.deaths, jobs)
    held: list[trace.Span] = []
    beyond_count = 0
    for span in spans:
        lease = _of(span, tries[span.job_id], evidence)
        lease_ends_at = trace.NEVER if lease is None else lease.recorded_at
        beyond_count += lease_ends_at + SLACK_S < span.ended_at < trace.NEVER
        if span.began_at < lease_ends_at:
            held.append(span._replace(ended_at=min(span.ended_at, lease_ends_at)))
    return LimitFindings(slots, len(spans), trace.most_at_once(held), beyond_count)


def _of(span: trace.Span, tries: Sequence[Tried], evidence: Evidence) -> Tried | None:
    """The try that a stretch of work belongs to: the last that its process had claimed when the work began."""
    own = [
        tried
        for tried in tries
        if evidence.workers.get(tried.worker_id) == span.pid and tried.claimed_at <= span.began_at + SLACK_S
    ]
    return max(own, key=lambda tried: tried.token, default=None)
