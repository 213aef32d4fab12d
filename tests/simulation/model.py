"""The possible outcomes of each acknowledged one-time job, by what clients requested and handlers did: a few sets, compared at
the end with the database. It knows nothing of tables, leases or retries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from uuid import UUID

if TYPE_CHECKING:
    from sexton.domain.job import Submission

COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
Cancel = Literal["none", "asked", "done"]


@dataclass
class _Deeds:
    """What is known of a job. It may not have been acknowledged yet."""

    success_count: int = 0  # number of handlers that returned
    failure_count: int = 0  # number of handlers that raised
    gave_up: bool = False  # failed permanently
    cancel: Cancel = "none"


@dataclass(frozen=True)
class _Job:
    max_attempts: int
    may_fail_unseen: bool  # because its time is over, or one start was lost

    def allowed(self, deeds: _Deeds) -> set[str]:
        if deeds.cancel == "done" and not deeds.success_count:
            return {CANCELLED}
        outcomes = {COMPLETED} if deeds.success_count else set()
        if deeds.cancel != "none":
            outcomes.add(CANCELLED)
        if deeds.gave_up or self.may_fail_unseen or deeds.failure_count >= self.max_attempts:
            outcomes.add(FAILED)
        return outcomes


@dataclass
class Model:
    _jobs: dict[UUID, _Job] = field(default_factory=dict)
    _deeds: dict[UUID, _Deeds] = field(default_factory=lambda: defaultdict(_Deeds))

    def submitted(self, job_id: UUID, job: Submission, *, created: bool) -> None:
        """An equal job that already exists keeps its first expectations, if a client knows it."""
        if not created and job.unique is not None:
            return
        policy = job.policy
        assert policy is not None, "every job of the simulation says how it is retried"
        has_no_time = bool(job.timeout_s) or policy.deadline_s is not None or policy.start_within_s is not None
        may_fail_unseen = has_no_time or bool(job.at_most_once) or policy.max_lost != 1000
        self._jobs.setdefault(job_id, _Job(policy.retry.max_attempts, may_fail_unseen))

    def cancel(self, job_id: UUID, answer: Cancel) -> None:
        """Asked: a client asked for it, and may not have got a reply. Done: the job ends as cancelled, unless it ended before.
        None: it had already ended."""
        if self._deeds[job_id].cancel != "done":
            self._deeds[job_id].cancel = answer

    def standing(self, job_id: UUID) -> Cancel:
        return self._deeds[job_id].cancel

    def returned(self, job_id: UUID) -> None:
        self._deeds[job_id].success_count += 1

    def raised(self, job_id: UUID, *, for_good: bool) -> None:
        self._deeds[job_id].failure_count += 1
        self._deeds[job_id].gave_up |= for_good

    def disagreements(self, endings: dict[UUID, str]) -> list[str]:
        allowed = {job_id: job.allowed(self._deeds[job_id]) for job_id, job in self._jobs.items()}
        return [
            f"{job_id} is {endings.get(job_id, 'nowhere')}, and may only be {' or '.join(sorted(outcomes)) or 'under way'}"
            for job_id, outcomes in allowed.items()
            if endings.get(job_id) not in outcomes
        ]
