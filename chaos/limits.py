"""How many of a limited kind were at work at once, by what the handlers wrote down.

A slot is held by a lease. Who goes on after losing it (stopped by SIGSTOP, or cut off) holds none, though its handler still
runs: such a stretch is counted apart, and explained by the fault that cost the lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.process import trace

from .evidence import Evidence, Tried

SLACK_S = 0.5  # a handler begins after its claim, on one clock; the database's is read a little apart


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
    """The try behind a stretch of work: the last that its process had claimed when it began."""
    own = [
        tried
        for tried in tries
        if evidence.workers.get(tried.worker_id) == span.pid and tried.claimed_at <= span.began_at + SLACK_S
    ]
    return max(own, key=lambda tried: tried.token, default=None)
