"""The verdict: which jobs were lost, leased twice or repeated, which fault explains each repetition, and which other promises
were broken. Anything without an explanation is a defect of Sexton or of this checker, and fails the run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

from tests.process import checker

from . import fires, limits
from .evidence import Evidence, Tried
from .explanation import Explanation, explain
from .fires import FireFindings
from .limits import LimitFindings
from .load import SERIAL, SLOTS

TRANSACTIONAL = "effect"
AT_MOST_ONCE = "once"


@dataclass
class Verdict:
    asked_count: int
    acknowledged_count: int
    executed_count: int  # starts of handlers
    completed_count: int
    lost: list[str] = field(default_factory=list)
    undrained: list[str] = field(default_factory=list)  # not ended when the time was up
    double_leases: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # other promises: cancels, keys, transactions, at most once, limits
    logged: list[str] = field(default_factory=list)  # tracebacks and failed passes in the members' logs
    repetitions: list[Explanation] = field(default_factory=list)
    repeated_runs: int = 0  # runs whose handler began more than once
    fires: FireFindings = field(default_factory=FireFindings)
    limits: dict[str, LimitFindings] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        return not any(self.charges().values())

    def charges(self) -> dict[str, list[str]]:
        return {
            "lost": self.lost,
            "not drained": self.undrained,
            "leased twice": self.double_leases,
            "unexplained": self.unexplained,
            "promises broken": self.broken,
            "missing fires": self.fires.missing,
            "doubled fires": self.fires.doubled,
            "unexpected fires": self.fires.unexpected,
            "errors logged": self.logged,
        }

    def repeated_because(self) -> Counter[str]:
        return Counter(f"{each.tried.status}: {each.why}" for each in self.repetitions)

    def __str__(self) -> str:
        counts = ", ".join(f"{len(found)} {name}" for name, found in self.charges().items())
        why = ", ".join(f"{count} {reason}" for reason, count in self.repeated_because().most_common()) or "none"
        text = (
            f"{self.asked_count} submitted, {self.acknowledged_count} acknowledged, {self.executed_count} executed, "
            f"{self.completed_count} completed; {counts}; {self.repeated_runs} runs executed more than once; "
            f"tries ended by: {why}"
        )
        return "\n  ".join([text, *(f"{name}: {each}" for name, found in self.charges().items() for each in found[:10])])


def judge(evidence: Evidence, *, lease_s: float) -> Verdict:
    submissions = evidence.submissions
    starts = Counter(line.run_id for line in evidence.lines if line.what == "start")
    verdict = Verdict(
        asked_count=submissions.asked_count.total(),
        acknowledged_count=len(submissions.acknowledged),
        executed_count=starts.total(),
        completed_count=sum(status == "completed" for status in evidence.endings.values()),
        repeated_runs=sum(count > 1 for count in starts.values()),
    )
    verdict.undrained = [str(job) for job in sorted(evidence.live)]
    verdict.unexplained += evidence.unrecorded
    verdict.logged = [f"{count} times {words}" for words, count in evidence.failures.items()]
    _compare_with_the_journal(evidence, verdict)
    _judge_leases(evidence, verdict)
    _judge_repetitions(evidence, verdict, lease_s)
    _judge_endings(evidence, verdict)
    verdict.broken += [f"{count} times {words}" for words, count in submissions.unforeseen.items()]
    verdict.broken += [f"two jobs under the key {key}" for key in evidence.doubled_keys]
    verdict.broken += [*_at_most_once(evidence), *_effects(evidence), *_cancels(evidence)]
    verdict.fires = fires.judge(evidence.expected_fires, evidence.fire_rows)
    for kind, slots in (("limited", SLOTS), *((name, 1) for name in SERIAL)):
        verdict.limits[kind] = found = limits.judge(evidence, submissions.ids(kind), slots)
        if found.most_at_once > slots:
            verdict.broken.append(f"{found.most_at_once} of {kind} at once under live leases, the limit is {slots}")
    return verdict


def _compare_with_the_journal(evidence: Evidence, verdict: Verdict) -> None:
    """Uses the checker of the process tests, with the database's times in place of the workers'."""
    recurring = {each.job_id for each in evidence.tries} - set(evidence.one_time)
    one_time = {*evidence.one_time, *evidence.submissions.ids()} - recurring - {job for job, _ in evidence.expected_fires}
    for submitted, wanted in ((one_time, one_time), ((), recurring)):
        found = checker.judge(
            checker.History(
                submitted,
                {job: status for job, status in evidence.endings.items() if job in wanted},
                {job for job in evidence.live if job in wanted},
                [_row(each, evidence.wall_offset) for each in evidence.tries if each.job_id in wanted],
                [line for line in evidence.lines if line.job_id in wanted],
                {each.job_id for each in evidence.tries if each.task == TRANSACTIONAL},
            )
        )
        verdict.lost += [str(job) for job in found.lost]
        verdict.double_leases += found.double_leases
        verdict.unexplained += found.unexplained


def _row(tried: Tried, offset: float) -> checker.Try:
    claimed_at, recorded_at = (datetime.fromtimestamp(at + offset, UTC) for at in (tried.claimed_at, tried.recorded_at))
    return checker.Try(
        tried.job_id, tried.run_id, tried.worker_id, tried.token, tried.attempt, tried.status, claimed_at, recorded_at
    )


def by_run(tries: Sequence[Tried]) -> list[list[Tried]]:
    """The tries of each run, in the order of their claims."""
    runs: defaultdict[UUID, list[Tried]] = defaultdict(list)
    for tried in tries:
        runs[tried.run_id].append(tried)
    return [sorted(run, key=lambda tried: tried.token) for run in runs.values()]


def _judge_leases(evidence: Evidence, verdict: Verdict) -> None:
    """By the database's clock alone: a lease begins with its claim and ends with the row of its execution."""
    for run in by_run(evidence.tries):
        verdict.double_leases += [
            f"{later.run_id}: token {later.token} claimed {earlier.recorded_at - later.claimed_at:.3f} s before "
            f"token {earlier.token} had {earlier.status}"
            for earlier, later in pairwise(run)
            if later.claimed_at < earlier.recorded_at
        ]


def _judge_repetitions(evidence: Evidence, verdict: Verdict, lease_s: float) -> None:
    began = {(line.run_id, line.pid) for line in evidence.lines if line.what == "start"}
    for tried in evidence.tries:
        if tried.status in ("succeeded", "cancelled"):
            continue
        has_begun = (tried.run_id, evidence.workers.get(tried.worker_id)) in began
        explanation = explain(tried, evidence, lease_s=lease_s)
        if explanation is not None:
            verdict.repetitions.append(explanation)
        elif has_begun or tried.status != "released":  # a run that was handed back before it began cost nothing
            verdict.unexplained.append(
                f"{tried.run_id}: token {tried.token} of {evidence.member_of(tried.worker_id) or tried.worker_id} "
                f"{tried.status} {tried.recorded_at - evidence.began_at:.1f} s after the start ({tried.reason}), "
                "and no fault explains it"
            )


def _judge_endings(evidence: Evidence, verdict: Verdict) -> None:
    kinds = {each.job_id: each.kind for each in evidence.submissions.acknowledged}
    for job, status in evidence.endings.items():
        if status == "cancelled" and job not in evidence.submissions.cancel_asked:
            verdict.unexplained.append(f"{job} was cancelled, but no caller had asked for it")
        elif status == "failed" and kinds.get(job, AT_MOST_ONCE) != AT_MOST_ONCE:
            verdict.unexplained.append(f"{job} ({kinds[job]}) ended in the dead letters")


def _at_most_once(evidence: Evidence) -> list[str]:
    jobs = evidence.submissions.ids(AT_MOST_ONCE)
    starts = Counter(line.job_id for line in evidence.lines if line.what == "start" and line.job_id in jobs)
    return [f"{job}: begun {count} times, but may begin only once" for job, count in starts.items() if count > 1]


def _effects(evidence: Evidence) -> list[str]:
    """The effect of a handler inside ctx.transaction() exists exactly once if its run was completed, else not at all."""
    jobs = {each.job_id for each in evidence.tries if each.task == TRANSACTIONAL}
    done = {job for job in jobs if evidence.endings.get(job) == "completed"}
    return _differences(done, evidence.effects)


def _differences(done: Collection[UUID], effects: Counter[UUID]) -> list[str]:
    return [
        f"{job}: {effects[job]} effects of a job that {'was' if job in done else 'was not'} completed"
        for job in {*done, *effects}
        if effects[job] != (job in done)
    ]


def _cancels(evidence: Evidence) -> list[str]:
    """A job that was cancelled before it started never starts."""
    return [
        f"{line.job_id}: begun {line.at - cancelled.at:.2f} s after its cancellation was acknowledged"
        for line in evidence.lines
        if line.what == "start"
        and (cancelled := evidence.submissions.cancelled.get(line.job_id)) is not None
        and cancelled.never_starts
        and line.at > cancelled.at
    ]
