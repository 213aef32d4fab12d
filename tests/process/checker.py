"""Compares what the database recorded with what the handlers journalled, and judges whether both can be true.

Sound means: no job is lost; no run was ever under two live leases; every repetition has a reason in the history; and no handler
ran without an execution in the history."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from chaos.fires import FireFindings
from chaos.fires import judge as judge_fires
from chaos.ledger import promised, recorded

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from sexton.store.database import Connection

from . import journal

# A handler of a worker that lost its lease may still run while the next one works. Any other end of an execution ends the
# handler.
MAY_OVERLAP = frozenset({"lost", "timed_out", "released"})
GOES_ON = MAY_OVERLAP | {"failed", "snoozed"}  # reasons for another execution of the same run
# The history computes the start from the time when the claim was sent, so start and end may be late by the duration of a claim.
HISTORY_SLACK_S = 2.0


class Try(NamedTuple):
    """One row of `sexton.executions`."""

    job_id: UUID
    run_id: UUID
    worker_id: UUID | None
    token: int
    attempt: int
    status: str
    started_at: datetime | None
    ended_at: datetime


class History(NamedTuple):
    submitted: Collection[UUID]
    endings: dict[UUID, str]
    live: Collection[UUID]  # jobs with a run that has not ended
    tries: Sequence[Try]
    lines: Sequence[journal.Line]
    transactional: Collection[UUID] = ()  # jobs that may end before their handler wrote the line


@dataclass
class Findings:
    submitted_count: int
    completed_count: int
    lost: list[UUID] = field(default_factory=list)
    double_leases: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    # runs executed more than once, by the end of the execution before
    repeated_because: Counter[str] = field(default_factory=Counter)

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.double_leases or self.unexplained)

    @property
    def all_completed(self) -> bool:
        return self.is_sound and self.completed_count == self.submitted_count

    def __str__(self) -> str:
        why = ", ".join(f"{count} {reason}" for reason, count in self.repeated_because.most_common()) or "none"
        text = (
            f"{self.submitted_count} submitted, {self.completed_count} completed, {len(self.lost)} lost, "
            f"{len(self.double_leases)} double leases, {len(self.unexplained)} unexplained; repeated after: {why}"
        )
        faults = [*map(str, self.lost), *self.double_leases, *self.unexplained]
        return "\n  ".join([text, *faults[:20]])


async def check(
    connection: Connection,
    directory: Path,
    submitted: Collection[UUID],
    *,
    transactional_tasks: Collection[str] = (),
) -> Findings:
    return judge(await read(connection, directory, submitted, transactional_tasks))


async def read(
    connection: Connection, directory: Path, submitted: Collection[UUID], transactional_tasks: Collection[str] = ()
) -> History:
    ids = list(submitted)
    tries = await connection.fetch(
        """SELECT job_id, run_id, worker_id, token, attempt, status, started_at, ended_at
           FROM sexton.executions WHERE job_id = ANY ($1)""",
        ids,
    )
    endings = await connection.fetch("SELECT job_id, status FROM sexton.endings WHERE job_id = ANY ($1)", ids)
    live = await connection.fetch("SELECT job_id FROM sexton.runs WHERE job_id = ANY ($1)", ids)
    transactional = await connection.fetch(
        "SELECT id FROM sexton.jobs WHERE id = ANY ($1) AND task = ANY ($2)", ids, list(transactional_tasks)
    )
    wanted = set(ids)
    return History(
        submitted,
        {row["job_id"]: row["status"] for row in endings},
        {row["job_id"] for row in live},
        [Try(*row) for row in tries],
        [line for line in journal.read(directory) if line.job_id in wanted],
        {row["id"] for row in transactional},
    )


def judge(history: History) -> Findings:
    findings = Findings(len(history.submitted), sum(status == "completed" for status in history.endings.values()))
    findings.lost = [job for job in history.submitted if job not in history.endings and job not in history.live]
    findings.unexplained += [
        f"{job} has ended and is still live" for job in history.submitted if job in history.endings and job in history.live
    ]
    tries: defaultdict[UUID, list[Try]] = defaultdict(list)
    for each in history.tries:
        if each.worker_id is not None:
            tries[each.run_id].append(each)
    lines: defaultdict[UUID, list[journal.Line]] = defaultdict(list)
    for line in history.lines:
        lines[line.run_id].append(line)
    for run_id in tries.keys() | lines.keys():
        claims = sorted(tries[run_id], key=lambda each: each.token)
        _judge_leases(run_id, claims, findings)
        _judge_repetitions(run_id, claims, findings)
        _judge_work(run_id, claims, _works(lines[run_id]), history, findings)
    return findings


def _judge_leases(run_id: UUID, claims: list[Try], findings: Findings) -> None:
    """Each claim raised the token by one and left exactly one row."""
    tokens = [claim.token for claim in claims]
    if len(set(tokens)) < len(tokens):
        findings.double_leases.append(f"{run_id}: two executions under one token: {tokens}")
    elif tokens != list(range(1, len(tokens) + 1)):
        findings.unexplained.append(f"{run_id}: a claim left no execution behind: tokens {tokens}")
    for earlier, later in pairwise(claims):
        if earlier.status in MAY_OVERLAP or later.started_at is None:
            continue
        if (earlier.ended_at - later.started_at).total_seconds() > HISTORY_SLACK_S:
            findings.double_leases.append(
                f"{run_id}: token {earlier.token} {earlier.status} at {earlier.ended_at}, after {later.token} had started"
            )


def _judge_repetitions(run_id: UUID, claims: list[Try], findings: Findings) -> None:
    for earlier in claims[:-1]:
        if earlier.status in GOES_ON:
            findings.repeated_because[earlier.status] += 1
        else:
            findings.unexplained.append(f"{run_id}: claimed again after token {earlier.token} had {earlier.status}")


class _Work(NamedTuple):
    """What the journal has about one try."""

    attempt: int
    began_at: float
    ended_at: float | None
    began_wall: float


def _works(lines: list[journal.Line]) -> list[_Work]:
    works: dict[tuple[int, int, float], _Work] = {}
    open_start: dict[tuple[int, int], float] = {}
    for line in sorted(lines, key=lambda line: line.at):
        who = (line.pid, line.context)
        if line.what == "start":
            open_start[who] = line.at
            works[*who, line.at] = _Work(line.attempt, line.at, None, line.wall)
        elif line.what == "end" and who in open_start:
            key = (*who, open_start.pop(who))
            works[key] = works[key]._replace(ended_at=line.at)
    return list(works.values())


def _judge_work(run_id: UUID, claims: list[Try], works: list[_Work], history: History, findings: Findings) -> None:
    told = _match(claims, works, spare=run_id in history.live)  # a one-time job's run has the id of the job
    if told is None:
        findings.unexplained.append(
            f"{run_id}: {len(works)} starts in the journal do not fit its {len(claims)} executions "
            f"({', '.join(claim.status for claim in claims)})"
        )
        return
    for (claim, work), (later_claim, later) in combinations(sorted(told, key=lambda pair: pair[0].token), 2):
        if claim.status not in MAY_OVERLAP and later.began_at < (work.ended_at or work.began_at):
            findings.double_leases.append(
                f"{run_id}: worked on under token {later_claim.token} before token {claim.token} had {claim.status}"
            )
    worked = {claim.token: work for claim, work in told}
    for claim in claims:
        done = worked.get(claim.token)
        if claim.status == "succeeded" and (
            done is None or (done.ended_at is None and claim.job_id not in history.transactional)
        ):
            findings.unexplained.append(f"{run_id}: token {claim.token} succeeded, but its handler never came to its end")


Told = list[tuple[Try, _Work]]


def _match(claims: list[Try], works: list[_Work], *, spare: bool) -> Told | None:
    """Assigns every start in the journal to a different execution. An execution may have no start (handed back or lost before
    the handler began). If the run is still live, one start may have no execution (`spare`). Any other start without an
    execution is an error. Of the possible assignments it takes the one in which the most successes have a handler that
    ended."""
    if not works:
        return []
    work, rest = works[0], works[1:]
    stories: list[Told] = []
    for index, claim in enumerate(claims):
        if _fits(claim, work):
            others = _match(claims[:index] + claims[index + 1 :], rest, spare=spare)
            if others is not None:
                stories.append([(claim, work), *others])
                if not rest and claim.status == "succeeded":
                    break
    if spare and not stories:
        left = _match(claims, rest, spare=False)
        if left is not None:
            stories.append(left)
    return max(stories, key=_credible, default=None)


def _credible(told: Told) -> tuple[int, int]:
    works = [work for claim, work in told if claim.status == "succeeded"]
    return sum(work.ended_at is not None for work in works), len(works)


def _fits(claim: Try, work: _Work) -> bool:
    if claim.attempt != work.attempt or claim.started_at is None:
        return False
    if work.began_wall < claim.started_at.timestamp() - HISTORY_SLACK_S:
        return False
    # A paused worker that lost its lease unnoticed may begin even after that.
    return claim.status in MAY_OVERLAP or work.began_wall <= claim.ended_at.timestamp() + HISTORY_SLACK_S


async def check_fires(connection: Connection, directory: Path, job_ids: Collection[UUID]) -> FireFindings:
    """Matches every fire that the schedules promise to exactly one executed run, or to a row with the reason why there is
    none."""
    ends = Counter(line.run_id for line in journal.read(directory) if line.what == "end")
    return judge_fires(
        await promised(connection, job_ids),
        await recorded(connection, job_ids),
        worked_twice={run_id for run_id, count in ends.items() if count > 1},
    )
