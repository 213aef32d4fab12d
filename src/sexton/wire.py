"""What goes over the wire: one set of structs for the HTTP API, the remote client and the command line's `--json`.

Requests know how to become the domain's documents; answers are plain data. Unknown fields are errors. Times are RFC 3339 with
an offset, spans are `"90s"`, `"15m"`, `"24h"` or seconds, payloads and results are kept as the JSON that was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.job import NAME_LIMIT, TAG_LIMIT, Delivery, Priority, Submission, Unique, submission
from sexton.domain.retry import Backoff, Retry

T = TypeVar("T")

# What the schema says beyond the types is checked by the domain, whose words are better than a decoder's.
_TEN_YEARS = {"minimum": 0, "maximum": 10 * 366 * 86400}
Span = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": r"^([0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d))+$"})]
    | Annotated[float, Meta(extra_json_schema=_TEN_YEARS)]
    | Annotated[int, Meta(extra_json_schema=_TEN_YEARS)],
    Meta(description='A span: "250ms", "90s", "15m", "24h", "7d", "1h30m", or a number of seconds.', examples=["90s"]),
]
Word = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT, extra_json_schema={"pattern": "^[^\\u0000]*$"})]
Instant = Annotated[datetime, Meta(tz=True, description="An instant with an offset (RFC 3339), such as 2026-03-01T09:00:00Z.")]

Moment = Annotated[datetime, Meta(tz=True)]

JobStatus = Literal["pending", "running", "completed", "failed", "cancelled", "paused"]
ExecutionStatus = Literal[
    "running", "succeeded", "failed", "timed_out", "cancelled", "lost", "snoozed", "released", "skipped", "missed", "paused"
]
Origin = Literal["schedule", "now", "backfill", "replay"]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a caller sends."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller gets. A newer server may add fields."""


# Requests


class RetryPolicy(_Request, frozen=True, kw_only=True):
    """What is left out keeps its default: five attempts, exponential from 30 s to 30 min, jitter 25 %."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    backoff: Backoff | None = None
    base: Span | None = None
    factor: Annotated[float, Meta(ge=1, le=1000)] | None = None
    max: Span | None = None
    jitter: Annotated[float, Meta(ge=0, le=0.25)] | None = None
    delays: tuple[Span, ...] | None = None
    replays: Annotated[int, Meta(ge=0, le=1000)] | None = None
    replay_after: Span | None = None

    def to_domain(self) -> Retry:
        given = {
            "max_attempts": self.max_attempts,
            "backoff": self.backoff or ("list" if self.delays else None),
            "base_s": _seconds("retry.base", self.base),
            "factor": self.factor,
            "max_s": _seconds("retry.max", self.max),
            "jitter": self.jitter,
            "delays_s": None if self.delays is None else tuple(seconds(delay, field="retry.delays") for delay in self.delays),
            "replays": self.replays,
            "replay_after_s": _seconds("retry.replay_after", self.replay_after),
        }
        if self.delays and self.max_attempts is None:
            given["max_attempts"] = len(self.delays) + 1
        try:
            return Retry(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        except Invalid as fault:
            raise Invalid(f"retry.{fault.field}", fault.message) from None


class UniqueRule(_Request, frozen=True, kw_only=True):
    """Equal jobs are one, while they are pending or for `period` after their submission."""

    by: tuple[Word, ...] = ("handler", "payload")
    period: Span | None = None
    on_conflict: Literal["keep", "replace"] = "keep"

    def to_domain(self) -> Unique:
        by = ("task" if part == "handler" else part for part in self.by)
        return Unique.of(*by, period=self.period, on_conflict=self.on_conflict)


class PythonHandler(_Request, tag_field="type", tag="python", frozen=True, kw_only=True):
    """A Python task, by its name; the same as giving the name alone."""

    task: Word


class JobRequest(_Request, frozen=True, kw_only=True):
    """A job to be submitted. At most one of `run_at` and `delay`; without either it is due now."""

    handler: Word | PythonHandler
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))  # a schema cannot hold it as a default
    run_at: Instant | None = None
    delay: Span | None = None
    name: Word | None = None
    tenant: Word | None = None
    queue: Word | None = None
    priority: Priority | None = None
    retry: RetryPolicy | None = None
    timeout: Span | None = None
    deadline: Span | None = None
    start_within: Span | None = None
    lease: Span | None = None
    progress_within: Span | None = None
    grace: Span | None = None
    max_lost: Annotated[int, Meta(ge=1, le=1000)] | None = None
    delivery: Delivery | None = None
    unique: bool | UniqueRule | None = None
    tags: Annotated[tuple[Word, ...], Meta(max_length=TAG_LIMIT)] | None = None
    idempotency_key: Word | None = None
    idempotency_ttl: Span | None = None

    @property
    def task(self) -> str:
        return self.handler if isinstance(self.handler, str) else self.handler.task

    def to_domain(self, *, submitted_by: str | None = None, trace: str | None = None) -> Submission:
        """The document of `sexton.submit_jobs`; `Invalid` names the field as it is spelled here."""
        try:
            return submission(
                self.task,
                self.payload,
                run_at=self.run_at,
                delay=self.delay,
                name=self.name,
                tenant=self.tenant,
                queue=self.queue,
                priority=self.priority,
                retry=None if self.retry is None else self.retry.to_domain(),
                timeout=self.timeout,
                deadline=self.deadline,
                start_within=self.start_within,
                lease=self.lease,
                progress_within=self.progress_within,
                grace=self.grace,
                max_lost=self.max_lost,
                delivery=self.delivery,
                unique=self.unique.to_domain() if isinstance(self.unique, UniqueRule) else self.unique,
                tags=self.tags,
                key=self.idempotency_key,
                key_ttl=self.idempotency_ttl,
                submitted_by=submitted_by,
                trace=trace,
            )
        except Invalid as fault:
            raise Invalid(_SPELLED.get(fault.field, fault.field), fault.message) from None


_SPELLED = {"task": "handler", "key": "idempotency_key", "key_ttl": "idempotency_ttl"}


class JobEdit(_Request, frozen=True, kw_only=True):
    """What to change in a pending job; what is left out stays, `null` goes back to the default."""

    payload: msgspec.Raw | UnsetType = UNSET
    run_at: Instant | UnsetType | None = UNSET
    delay: Span | UnsetType | None = UNSET
    name: Word | UnsetType | None = UNSET
    queue: Word | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    retry: RetryPolicy | UnsetType | None = UNSET
    timeout: Span | UnsetType | None = UNSET
    deadline: Span | UnsetType | None = UNSET
    start_within: Span | UnsetType | None = UNSET
    tags: Annotated[tuple[Word, ...], Meta(max_length=TAG_LIMIT)] | UnsetType | None = UNSET


class StatusChange(_Request, frozen=True, kw_only=True):
    """A command to a job: stop it for now, let it go on, or end it."""

    status: Literal["paused", "active", "cancelled"]
    note: Annotated[str, Meta(max_length=500)] | None = None


class DeadLetterFilter(_Request, frozen=True, kw_only=True):
    """Which dead letters; what is left out does not matter. At least one must be given."""

    ids: Annotated[tuple[UUID, ...], Meta(max_length=10_000)] | None = None
    handler: Word | None = None
    tenant: Word | None = None
    queue: Word | None = None
    permanent: bool | None = None


class ReplayRequest(_Request, frozen=True, kw_only=True):
    """Runs dead letters again with a fresh budget, each once. `dry_run` only counts; `keep_key: false` lets the effect of an
    idempotency key happen again."""

    filter: DeadLetterFilter
    dry_run: bool = False
    keep_key: bool = True
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


class DiscardRequest(_Request, frozen=True, kw_only=True):
    filter: DeadLetterFilter
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


# Answers


class Error(_Answer, frozen=True, kw_only=True):
    """What a handler raised."""

    type: str
    message: str
    traceback: str | None = None


class Execution(_Answer, frozen=True, kw_only=True):
    """One try of a run. The one that runs now has no id yet, and what it has said so far."""

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
    result: Any = None  # any JSON; the API passes on the text it was kept as, and `Raw | None` could not be read back
    progress: Any = None
    output: str | None = None


class Job(_Answer, frozen=True, kw_only=True):
    """A job as it stands now."""

    id: UUID
    status: JobStatus
    version: int
    handler: str
    payload: msgspec.Raw
    tenant: str
    queue: str
    priority: Priority
    delivery: Delivery
    name: str | None = None
    tags: Sequence[str] = ()
    retry: RetryPolicy | None = None  # what it says beyond the defaults
    timeout_s: float | None = None
    deadline_s: float | None = None
    start_within_s: float | None = None
    idempotency_key: str | None = None
    submitted_at: Moment
    submitted_by: str | None = None
    trace: str | None = None
    next_fire_at: Moment | None = None
    attempt: int = 0  # tries begun so far
    ended_at: Moment | None = None
    last_execution: Execution | None = None
    note: str | None = None  # of whoever paused it
    warnings: Sequence[str] = ()


class Submitted(Job, frozen=True, kw_only=True):
    """The answer to a submission. `created` is false where an idempotency key or an equal job stood already."""

    created: bool


class Page(_Answer, Generic[T], frozen=True, kw_only=True):
    """Newest first. With a `next_cursor` there may be more, even if this page is short: a search with several filters looks
    at a bounded number of jobs per page."""

    items: Sequence[T]
    next_cursor: str | None = None


class Fault(_Answer, frozen=True, kw_only=True):
    """`pointer` is a JSON pointer (RFC 6901) into the body, `?name` for a parameter of the query, or a header's name."""

    pointer: str
    detail: str


class Problem(_Answer, omit_defaults=True, frozen=True, kw_only=True):
    """RFC 9457. `code` is stable; `errors` names each fault."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: Sequence[Fault] = ()
    request_id: str | None = None


class BatchItem(_Answer, omit_defaults=True, frozen=True, kw_only=True):
    """What became of one job of a batch, in the order given: an id, or in a partial batch the problem with it."""

    index: int
    id: UUID | None = None
    created: bool | None = None
    problem: Problem | None = None


class Batch(_Answer, frozen=True, kw_only=True):
    items: Sequence[BatchItem]
    created_count: int
    existing_count: int
    refused_count: int
    warnings: Sequence[str] = ()
    next_cursor: None = None


class DeadLetter(_Answer, frozen=True, kw_only=True):
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


class Replay(_Answer, frozen=True, kw_only=True):
    """`risen` names each job that runs again; after a dry run it is empty. `matched_count` counts what was chosen."""

    matched_count: int
    risen: Sequence[UUID]
    dry_run: bool


class Discard(_Answer, frozen=True, kw_only=True):
    matched_count: int
    discarded: Sequence[UUID]
    dry_run: bool


class Cancelled(_Answer, frozen=True, kw_only=True):
    """What a cancellation did: runs that will never start, and running ones that were asked to stop."""

    job: Job
    ended_count: int
    asked_count: int


class Worker(_Answer, frozen=True, kw_only=True):
    id: UUID
    name: str
    status: Literal["live", "draining", "lost"]
    queues: Sequence[str]
    tasks: Sequence[str]
    concurrency: int
    running_count: int
    refused_count: int
    started_at: Moment
    beat_at: Moment
    silent_s: float
    lost_at: Moment | None = None


class Node(_Answer, frozen=True, kw_only=True):
    """A scheduler. It leads the partitions it lists."""

    id: UUID
    name: str
    status: Literal["live", "silent"]
    started_at: Moment
    beat_at: Moment
    silent_s: float
    partitions: Sequence[int]


class QueueView(_Answer, frozen=True, kw_only=True):
    """Counts stop at 10,000 (`capped`), so that a look at a long queue costs what a look at a short one does."""

    name: str
    ready_count: int
    running_count: int
    waiting_count: int
    capped: bool
    oldest_ready_s: float | None
    worker_count: int


class TenantView(_Answer, frozen=True, kw_only=True):
    name: str
    ready_count: int
    running_count: int
    waiting_count: int
    capped: bool


class Stats(_Answer, frozen=True, kw_only=True):
    """The whole cluster at a glance; counts stop at 10,000 each (`capped`)."""

    at: Moment
    ready_count: int
    running_count: int
    waiting_count: int
    paused_count: int
    capped: bool
    oldest_ready_s: float | None
    next_due_at: Moment | None
    dead_letter_count: int
    worker_count: int
    node_count: int
    slot_count: int
    ended_last_minute: dict[str, int]  # executions by status


class Health(_Answer, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"


class Check(_Answer, frozen=True, kw_only=True):
    ok: bool
    detail: str


class Readiness(_Answer, frozen=True, kw_only=True):
    ready: bool
    checks: dict[str, Check]


class Event(_Answer, omit_defaults=True, frozen=True, kw_only=True):
    """One transition, as `GET /v1/events` tells it."""

    type: Literal["submitted", "started", "ended", "retrying", "dead_lettered"]
    at: Moment
    job_id: UUID
    run_id: UUID | None = None
    handler: str
    queue: str
    tenant: str
    status: str | None = None  # of the execution that ended
    ending: Literal["completed", "failed", "cancelled"] | None = None  # of the job, if this was its end
    attempt: int | None = None
    worker_id: UUID | None = None
    reason: str | None = None


def _seconds(field: str, span: Span | None) -> float | None:
    return None if span is None else seconds(span, field=field)
