"""The worker protocol over HTTP: what workers in other languages and targets that call back send and receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.job import Priority
from sexton.domain.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, ErrorInfo, Failed, Outcome, Released, Snoozed, storable

from .answers import Problem
from .kinds import Answer, ExecutionStatus, Moment, Origin, Request, Span, Word

ACQUIRE_LIMIT = 100  # runs at once, each with a payload of up to 256 KiB
HOLDING_LIMIT = 1_000
COMPLETE_LIMIT = 1_000
LEASE_S = (1.0, 3600.0)
WAIT_S_MAX = 30.0

Ids = Annotated[tuple[UUID, ...], Meta(max_length=HOLDING_LIMIT)]
Words = Annotated[str, Meta(max_length=64 * 1024)]
SignedLease = Annotated[str, Meta(max_length=200)]


def _null() -> msgspec.Raw:
    """JSON that was not given."""
    return msgspec.Raw(b"null")


class AcquireRequest(Request, frozen=True, kw_only=True):
    """A worker asks for runs, and describes itself. Every call counts as a heartbeat."""

    tasks: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=500)]
    queues: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=100)] = ("default",)
    worker_id: UUID | None = None  # null: the server creates one
    name: Word = "remote"
    limit: Annotated[int, Meta(ge=1, le=ACQUIRE_LIMIT)] = 1
    concurrency: Annotated[int, Meta(ge=1, le=HOLDING_LIMIT)] | None = None
    wait: Span = 20.0
    lease: Span = 60.0
    holding: Ids | None = None

    @property
    def lease_s(self) -> float:
        lease_s = seconds(self.lease, field="lease")
        if not LEASE_S[0] <= lease_s <= LEASE_S[1]:
            raise Invalid("lease", f"{lease_s:g} s must be between {LEASE_S[0]:g} s and {LEASE_S[1]:g} s")
        return lease_s

    @property
    def wait_s(self) -> float:
        """Never so long that the worker would be declared dead while it waits for the answer."""
        wait_s = seconds(self.wait, field="wait")
        if wait_s > WAIT_S_MAX:
            raise Invalid("wait", f"at most {WAIT_S_MAX:g} s; ask again after that")
        return min(wait_s, self.lease_s / 2)


class AcquiredRun(Answer, frozen=True, kw_only=True):
    """A run under a lease. Every report of it must contain `lease`."""

    run_id: UUID
    job_id: UUID
    lease: str
    handler: str
    payload: msgspec.Raw
    attempt: int
    origin: Origin
    name: str | None
    tenant: str
    queue: str
    priority: Priority
    job_version: int
    fire_at: Moment
    due_at: Moment
    timeout_s: float | None
    progress_within_s: float | None
    idempotency_key: str
    trace: str | None
    target: Any = None  # of a job that names a URL, a gRPC method or a command


class StopRun(Answer, frozen=True, kw_only=True):
    """A run that its worker should stop: its job was cancelled, or another worker has the lease."""

    run_id: UUID
    why: Literal["cancelled", "lost"]


class Acquired(Answer, frozen=True, kw_only=True):
    worker_id: UUID
    lease_s: float
    runs: Sequence[AcquiredRun]
    stop: Sequence[StopRun] = ()


class WorkerHeartbeat(Request, frozen=True, kw_only=True):
    """A heartbeat of a worker. Runs under its lease that it does not hold are given back."""

    holding: Ids | None = None
    draining: bool = False


class WorkerHeard(Answer, frozen=True, kw_only=True):
    worker_id: UUID
    lease_s: float
    stop: Sequence[StopRun]


class WorkerGone(Answer, frozen=True, kw_only=True):
    worker_id: UUID
    released_count: int


class LeaseRequest(Request, frozen=True, kw_only=True):
    """About one run, from a caller that presents its lease: here, or as `Authorization: Bearer`."""

    lease: SignedLease | None = None


class RunHeartbeat(LeaseRequest, frozen=True, kw_only=True):
    """A heartbeat of the run."""

    progress: msgspec.Raw = msgspec.field(default_factory=_null)
    output: Words | None = None


class RunHeard(Answer, frozen=True, kw_only=True):
    run_id: UUID
    cancel_requested: bool
    ends_at: Moment | None


class CompleteRequest(LeaseRequest, frozen=True, kw_only=True):
    result: msgspec.Raw = msgspec.field(default_factory=_null)
    output: Words | None = None


class CompleteItem(CompleteRequest, frozen=True, kw_only=True):
    run_id: UUID


class CompleteMany(Request, frozen=True, kw_only=True):
    items: Annotated[tuple[CompleteItem, ...], Meta(min_length=1, max_length=COMPLETE_LIMIT)]


class RemoteError(Request, frozen=True, kw_only=True):
    """The rules of a retry policy match `type`."""

    message: str
    type: Word = "RemoteError"
    traceback: str | None = None


class FailRequest(LeaseRequest, frozen=True, kw_only=True):
    error: str | RemoteError
    permanent: bool = False
    retry_after: Span | None = None
    output: Words | None = None

    def to_outcome(self) -> Outcome:
        told = RemoteError(message=self.error) if isinstance(self.error, str) else self.error
        traceback = None if told.traceback is None else storable(told.traceback)[-TRACEBACK_LIMIT:]
        kind = storable(told.type)
        return Failed(
            ErrorInfo(kind, storable(told.message)[:MESSAGE_LIMIT], traceback, (kind,)),
            permanent=self.permanent,
            retry_after_s=None if self.retry_after is None else seconds(self.retry_after, field="retry_after"),
        )


class ReleaseRequest(LeaseRequest, frozen=True, kw_only=True):
    """Given back unfinished; with `delay`, it starts again no sooner than that. Neither uses an attempt."""

    reason: Word = "given back by its worker"
    delay: Span | None = None

    def to_outcome(self) -> Outcome:
        if self.delay is None:
            return Released(storable(self.reason))
        return Snoozed(seconds(self.delay, field="delay"), storable(self.reason))


class Reported(Answer, frozen=True, kw_only=True):
    """The recorded result. `state` is the current state of the run; null: it has ended."""

    run_id: UUID
    execution_id: UUID
    status: ExecutionStatus
    state: str | None


class CompletedItem(Answer, frozen=True, kw_only=True):
    """One of many: the recorded result, or why nothing was recorded."""

    run_id: UUID
    reported: Reported | None = None
    problem: Problem | None = None


class CompletedMany(Answer, frozen=True, kw_only=True):
    items: Sequence[CompletedItem]
    refused_count: int
