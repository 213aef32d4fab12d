"""Answers to callers: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

from sexton.domain.job import Priority

from .job_options import ShownOptions
from .kinds import Answer, ExecutionStatus, JobStatus, Moment, Origin
from .schedules import Schedule

T = TypeVar("T")


class Error(Answer, frozen=True, kw_only=True):
    """The error that a handler raised."""

    type: str
    message: str
    traceback: str | None = None


class Execution(Answer, frozen=True, kw_only=True):
    """One attempt of a run. The one that runs now has no id yet; it has its progress and output so far."""

    id: UUID | None
    job_id: UUID
    run_id: UUID
    status: ExecutionStatus
    attempt: int
    origin: Origin
    handler: str
    queue: str
    tenant: str
    job_version: int
    fire_at: Moment
    due_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = None
    worker_id: UUID | None = None
    reason: str | None = None
    error: Error | None = None
    result: Any = None  # any JSON; the API passes on the stored text, and `Raw | None` could not be read back
    progress: Any = None
    output: str | None = None
    payload: Any = None  # null: the job's


class Job(ShownOptions, frozen=True, kw_only=True):
    """A job in its current state."""

    submitted_at: Moment
    submitted_by: str | None = None
    trace: str | None = None
    next_fire_at: Moment | None = None
    attempt: int = 0  # attempts started so far
    ended_at: Moment | None = None
    last_execution: Execution | None = None
    note: str | None = None  # of the person who paused it
    warnings: Sequence[str] = ()
    schedule: Schedule | None = None  # of a recurring job, down to over_reason
    schedule_words: str | None = None
    paused_at: Moment | None = None
    paused_by: str | None = None
    resume_at: Moment | None = None
    over_reason: str | None = None


class Submitted(Job, frozen=True, kw_only=True):
    """The answer to a submission. `created` is false if the idempotency key or an equal job already existed."""

    created: bool


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """Newest first. With a `next_cursor` there may be more, even if this page is short: a search with several filters reads a
    bounded number of jobs per page."""

    items: Sequence[T]
    next_cursor: str | None = None


class Fault(Answer, frozen=True, kw_only=True):
    """`pointer` is a JSON pointer (RFC 6901) into the body, `?name` for a parameter of the query, or the name of a header."""

    pointer: str
    detail: str


class Problem(Answer, omit_defaults=True, frozen=True, kw_only=True):
    """RFC 9457. `code` is stable; `errors` names each fault. If a limit of a tenant rejects a submission, `limit` names it,
    with its `max` and when to try again."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: Sequence[Fault] = ()
    limit: str | None = None  # of a tenant, that the submission would exceed
    max: float | None = None
    retry_after_s: float | None = None
    request_id: str | None = None


class BatchItem(Answer, omit_defaults=True, frozen=True, kw_only=True):
    """The result for one job of a batch, in the order given: an id, or in a partial batch its problem."""

    index: int
    id: UUID | None = None
    created: bool | None = None
    warnings: Sequence[str] = ()
    problem: Problem | None = None


class Batch(Answer, frozen=True, kw_only=True):
    items: Sequence[BatchItem]
    created_count: int
    existing_count: int
    refused_count: int
    warnings: Sequence[str] = ()
    next_cursor: None = None


class Preview(Answer, frozen=True, kw_only=True):
    """When a schedule fires, with jitter. If there are fewer fires than requested, it has no more."""

    description: str
    timezone: str
    fires: Sequence[Moment]
    warnings: Sequence[str] = ()


class EditPreview(Answer, frozen=True, kw_only=True):
    """What an edit would change, up to `until`: 30 days ahead, or less for a dense schedule. Nothing was changed."""

    description: str
    until: Moment
    added: Sequence[Moment]
    removed: Sequence[Moment]
    warnings: Sequence[str] = ()


class FireGap(Answer, frozen=True, kw_only=True):
    """Fires that will not run, as one entry."""

    first: Moment
    last: Moment
    count: int
    reason: str


class ResumePreview(Answer, frozen=True, kw_only=True):
    """What a resume would do now: the fires that it would plan, including those of the pause that `on_resume` lets run, and
    those that it would record as paused. Nothing was changed."""

    fires: Sequence[Moment]
    missed: Sequence[FireGap]


class Backfill(Answer, frozen=True, kw_only=True):
    """The runs that a backfill has written, or after a dry run would write: the nominal times of their fires, in the order in
    which they become due. Fires of the range that were left out are counted by the reason."""

    job_id: UUID
    version: int
    from_at: Moment = msgspec.field(name="from")
    until: Moment
    fires: Sequence[Moment]
    last_due_at: Moment | None
    already_ran_count: int
    live_count: int
    dead_letter_count: int
    undecided_count: int
    dry_run: bool


class BackfillStopped(Answer, frozen=True, kw_only=True):
    """The result of stopping a backfill: runs that will never start, and running ones, which continue."""

    job_id: UUID
    ended_count: int
    running_count: int


class WhyLink(Answer, frozen=True, kw_only=True):
    """One question of the chain: whether the answer lets the job run, and the facts behind it."""

    check: str
    ok: bool
    detail: str
    evidence: dict[str, Any]


class Why(Answer, frozen=True, kw_only=True):
    """Why a job has or has not run: the answer in one sentence, and the questions that led to it, in order."""

    job_id: UUID
    status: JobStatus
    answer: str
    chain: Sequence[WhyLink]


class DeadLetter(Answer, frozen=True, kw_only=True):
    id: UUID
    job_id: UUID
    run_id: UUID
    handler: str
    tenant: str
    queue: str
    priority: Priority
    name: str | None
    status: ExecutionStatus
    reason: str
    permanent: bool
    attempts: int
    lost_count: int
    job_version: int
    fire_at: Moment
    buried_at: Moment
    replay_at: Moment | None
    error: Error | None
    payload: msgspec.Raw


class Replay(Answer, frozen=True, kw_only=True):
    """`replayed` lists the jobs that run again; after a dry run it is empty. `matched_count` counts the selected letters."""

    matched_count: int
    replayed: Sequence[UUID]
    dry_run: bool


class Discard(Answer, frozen=True, kw_only=True):
    matched_count: int
    discarded: Sequence[UUID]
    dry_run: bool


class Cancelled(Answer, frozen=True, kw_only=True):
    """The result of a cancellation: runs that will never start, and running ones that were asked to stop."""

    job: Job
    ended_count: int
    asked_count: int


class Worker(Answer, frozen=True, kw_only=True):
    id: UUID
    name: str
    status: Literal["live", "draining", "silent", "lost"]
    queues: Sequence[str]
    tasks: Sequence[str]
    concurrency: int
    running_count: int
    process_slots: int = 0
    process_running_count: int = 0
    batch_slots: int = 0
    batch_running_count: int = 0
    refused_count: int
    lacks: Sequence[str] = ()
    started_at: Moment
    beat_at: Moment
    silent_s: float
    lost_at: Moment | None = None
    quarantine: bool = False


class Node(Answer, frozen=True, kw_only=True):
    """A scheduler. It leads the partitions that it lists."""

    id: UUID
    name: str
    status: Literal["live", "silent"]
    started_at: Moment
    beat_at: Moment
    silent_s: float
    partitions: Sequence[int]


class Stats(Answer, frozen=True, kw_only=True):
    """An overview of the cluster; counts stop at 10,000 each (`capped`)."""

    at: Moment
    ready_count: int
    running_count: int
    waiting_count: int
    parked_count: int = 0
    quarantined_count: int = 0
    paused_count: int
    capped: bool
    oldest_ready_s: float | None
    next_due_at: Moment | None
    dead_letter_count: int
    worker_count: int
    silent_worker_count: int = 0
    node_count: int
    slot_count: int
    process_slot_count: int = 0
    batch_slot_count: int = 0
    ended_last_minute: dict[str, int]  # executions by status


class Health(Answer, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


class Check(Answer, frozen=True, kw_only=True):
    ok: bool
    detail: str


class Readiness(Answer, frozen=True, kw_only=True):
    ready: bool
    checks: dict[str, Check]


class Event(Answer, omit_defaults=True, frozen=True, kw_only=True):
    """One transition, as `GET /v1/events` sends it."""

    type: Literal["submitted", "started", "ended", "retrying", "dead_lettered"]
    at: Moment
    job_id: UUID
    run_id: UUID | None = None
    handler: str
    queue: str
    tenant: str
    status: str | None = None  # of the ended execution
    ending: Literal["completed", "failed", "cancelled"] | None = None  # of the job, if this was its end
    attempt: int | None = None
    worker_id: UUID | None = None
    reason: str | None = None
