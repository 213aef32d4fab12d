"""Checks recurring jobs, as Jepsen's test of Chronos does: every fire that the schedules promise is one run, or the ledger has
the reason why not.

A run that was tried twice because its worker died is one fire. That is a repetition, and the checker explains it elsewhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from .ledger import Fire, FireRow


@dataclass
class FireFindings:
    expected_count: int = 0
    executed_count: int = 0
    explained: Counter[str] = field(default_factory=Counter)  # fires that did not run, by the reason in the ledger
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    late_s: float = 0.0

    @property
    def is_sound(self) -> bool:
        return not (self.missing or self.doubled or self.unexpected)

    def __str__(self) -> str:
        why = ", ".join(f"{count} {status}" for status, count in self.explained.most_common()) or "none"
        text = (
            f"{self.expected_count} fires expected, {self.executed_count} executed (the latest {self.late_s:.1f} s late), "
            f"{len(self.missing)} missing, {len(self.doubled)} doubled, {len(self.unexpected)} unexpected; explained: {why}"
        )
        return "\n  ".join([text, *self.missing[:10], *self.doubled[:10], *self.unexpected[:10]])


def judge(expected: Collection[Fire], rows: Sequence[FireRow], *, worked_twice: Collection[UUID] = ()) -> FireFindings:
    """`worked_twice`: runs whose handler ended more than once without a fault that excuses it."""
    findings = FireFindings(expected_count=len(expected))
    runs: defaultdict[Fire, set[UUID]] = defaultdict(set)
    unstarted: dict[Fire, str] = {}
    gaps: defaultdict[UUID, list[tuple[datetime, datetime, str]]] = defaultdict(list)
    for row in rows:
        if row.gap is not None:
            gaps[row.job_id].append((*row.gap, row.status))
        elif row.started_at is not None:
            runs[row.job_id, row.fire_at].add(row.run_id)
            findings.late_s = max(findings.late_s, (row.started_at - row.fire_at).total_seconds())
        else:
            unstarted[row.job_id, row.fire_at] = row.status
    for fire in sorted(expected, key=str):
        gap = next((status for first, last, status in gaps[fire[0]] if first <= fire[1] <= last), None)
        started = runs.get(fire, set())
        if len(started) > 1 or (started and gap) or not started.isdisjoint(worked_twice):
            findings.doubled.append(f"{fire[0]} at {fire[1]}: {len(started)} runs{', and missed as well' if gap else ''}")
        elif started:
            findings.executed_count += 1
        elif why_not := unstarted.get(fire) or gap:
            findings.explained[why_not] += 1
        else:
            findings.missing.append(f"{fire[0]} at {fire[1]}")
    promised = set(expected)
    findings.unexpected = [f"{job_id} at {at}" for job_id, at in (*runs, *unstarted) if (job_id, at) not in promised]
    return findings
