"""A run as a worker holds it, and the report that ends or returns it."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from random import Random
from typing import Any, Literal, assert_never
from uuid import UUID

import msgspec

from .job import MAX_LOST, Policy
from .outcome import ErrorInfo, Failed, Lost, Outcome, Released, Succeeded, status_of
from .retry import Bury, Finish, Next, RetryIn, RetryState, decide
from .states import Status


class Lease(msgspec.Struct, frozen=True):
    """A run with the `worker_id` and the `token` that a report must match to end it. No worker holds it if `worker_id` is
    null."""

    run_id: UUID
    job_id: UUID
    worker_id: UUID | None
    token: int
    attempt: int
    lost_count: int
    at_most_once: bool
    seq: int
    origin: str
    deadline_left_s: float | None
    policy_json: str | None
    progress_json: str | None = None  # the last progress before the worker was lost
    output: str | None = None

    @property
    def fence(self) -> tuple[UUID, int]:
        """The run and the token: no other lease has both."""
        return self.run_id, self.token

    @property
    def policy(self) -> Policy:
        return policy_of(self.policy_json)


class Previous(msgspec.Struct, frozen=True):
    """The last try of the previous fire of a recurring job."""

    status: str
    fire_at: datetime


class Claimed(msgspec.Struct, frozen=True):
    """A run that a worker has just leased, with everything it needs to execute it."""

    lease: Lease
    job_version: int
    fire_at: datetime
    due_at: datetime
    claimed_at: datetime
    timeout_s: float | None
    queue: str
    tenant: str
    lane: int
    task: str
    name: str | None
    payload_json: str | None  # null: the job's definition was deleted
    idempotency_key: str | None
    completed_by: UUID | None  # an execution that has already completed this key
    trace: str | None
    turn: int = 0  # of its tenant in the round; 0: all turns are used (domain.fairness)
    is_limited: bool = False  # another run may wait for its slot, so it is never prefetched
    previous: Previous | None = None

    @property
    def run_id(self) -> UUID:
        return self.lease.run_id


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document of `sexton.finish_runs`, or a row of the arrays of `sexton.finish_batch`."""

    run_id: UUID
    token: int
    next: Literal["end", "again"]
    status: str
    worker_id: UUID | None = None
    ending: Literal["completed", "failed", "cancelled"] | None = None
    started_s: float | None = None
    took_s: float | None = None
    delay_s: float | None = None
    spends: Literal["attempt", "loss", "nothing"] | None = None
    reason: str | None = None
    error: ErrorInfo | None = None
    result: msgspec.Raw | None = None
    progress: msgspec.Raw | None = None
    output: str | None = None
    permanent: bool | None = None
    replay_s: float | None = None
    key: str | None = None
    held: int | None = None  # of a lost run: how many its worker held
    batch_limit: int | None = None  # of a run whose call failed together with others
    is_limited: bool = False  # its run may hold a slot of a limit

    @property
    def is_plain(self) -> bool:
        """A success that changes only the run, its history and the ending of its job: the most common report."""
        return (
            self.status == "succeeded"
            and self.ending == "completed"
            and self.worker_id is not None
            and self.started_s is not None
            and self.took_s is not None
            and self.key is None
            and self.reason is None
            and self.output is None
            and self.progress is None
            and self.error is None
            and not self.is_limited
        )


@lru_cache(maxsize=4096)
def policy_of(policy_json: str | None) -> Policy:
    return Policy() if policy_json is None else msgspec.json.decode(policy_json, type=Policy)


def retry_state(lease: Lease, *, deadline_left_s: float | None) -> RetryState:
    policy = lease.policy
    return RetryState(
        attempt=lease.attempt,
        lost_count=lease.lost_count,
        retry=policy.retry,
        max_lost=MAX_LOST if policy.max_lost is None else policy.max_lost,
        at_most_once=lease.at_most_once,
        deadline_left_s=deadline_left_s,
        replay_count=lease.seq if lease.origin == "replay" else 0,
    )


def report(
    lease: Lease,
    outcome: Outcome,
    rng: Random,
    *,
    started_s: float | None = None,
    took_s: float | None = None,
    result: msgspec.Raw | None = None,
    progress: msgspec.Raw | None = None,
    output: str | None = None,
    key: str | None = None,
    is_limited: bool = False,
) -> Report:
    """The report of an outcome: what happened, and what `decide` says follows."""
    progress = _raw(lease.progress_json) if progress is None else progress
    output = lease.output if output is None else output
    if isinstance(outcome, Succeeded):  # the most common outcome: there is nothing to decide
        return Report(
            lease.run_id,
            lease.token,
            "end",
            Status.SUCCEEDED,
            lease.worker_id,
            "completed",
            started_s,
            took_s,
            reason=outcome.reason,
            result=result,
            progress=progress,
            output=output,
            key=key,
            is_limited=is_limited,
        )
    left_s = lease.deadline_left_s
    if left_s is not None and started_s is not None and took_s is not None:
        left_s -= started_s + took_s
    following = decide(outcome, retry_state(lease, deadline_left_s=left_s), rng)
    what: dict[str, Any] = {"status": status_of(outcome), **_consequence(following)}
    return Report(
        run_id=lease.run_id,
        token=lease.token,
        worker_id=lease.worker_id,
        started_s=started_s,
        took_s=took_s,
        reason=_reason(outcome, following),
        error=outcome.error if isinstance(outcome, Failed) else None,
        result=result,
        progress=progress,
        output=output,
        key=key,
        held=outcome.held if isinstance(outcome, Lost) else None,
        batch_limit=outcome.batch_limit if isinstance(outcome, Released) else None,
        **what,
    )


def _consequence(following: Next) -> dict[str, Any]:
    match following:
        case Finish(ending):
            return {"next": "end", "ending": ending}
        case RetryIn(delay_s, spends):
            return {"next": "again", "delay_s": delay_s, "spends": spends}
        case Bury(_, permanent, replay_in_s):
            return {"next": "end", "ending": "failed", "permanent": permanent, "replay_s": replay_in_s}
        case _:
            assert_never(following)


def _reason(outcome: Outcome, following: Next) -> str | None:
    if isinstance(following, Bury):
        return following.reason
    return getattr(outcome, "reason", None)


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
