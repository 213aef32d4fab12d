"""Subscriptions and the log of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, field

from sexton.domain.job import Priority
from sexton.domain.subscription import KINDS, Runs, Subscription, subscription
from sexton.domain.subscription import Kind as EventKind

from .answers import Error
from .handlers import HttpHandler, Url, Values
from .kinds import Answer, Instant, JobStatus, Moment, Request, Span, Word
from .retrying import RetryPolicy

DeliveryEnd = Literal["failed", "completed", "cancelled"]


class RunFilter(Request, frozen=True, kw_only=True):
    """Which runs: all given fields must match; a field that is left out matches all."""

    tenant: Word | None = None
    queue: Word | None = None
    job_id: UUID | None = None


class SubscriptionSettings(Request, frozen=True, kw_only=True):
    """Where events go, which ones, and how they are sent. Fields that you leave out have their default: all kinds, of all runs,
    eight attempts over about a day, 15 s for each."""

    url: Url
    kinds: Annotated[tuple[EventKind, ...], Meta(min_length=1, max_length=4)] = KINDS
    filter: RunFilter = field(default_factory=RunFilter)
    headers: Values = field(default_factory=dict)
    signed_with: Annotated[tuple[Word, ...], Meta(max_length=5)] = ()
    queue: Word | None = None
    priority: Priority | None = None
    retry: RetryPolicy | None = None
    timeout: Span | None = None
    paused: bool = False

    def to_domain(self, name: str) -> Subscription:
        return subscription(
            name,
            HttpHandler(url=self.url, headers=self.headers, signed_with=self.signed_with).to_domain(),
            kinds=self.kinds,
            runs=Runs(tenant=self.filter.tenant, queue=self.filter.queue, job_id=self.filter.job_id),
            queue=self.queue,
            priority=self.priority,
            retry=None if self.retry is None else self.retry.to_domain(),
            timeout=self.timeout,
            paused=self.paused,
        )


class DeliveriesReplay(Request, frozen=True, kw_only=True):
    """Which deliveries are sent again: ended ones with this status (any status, if it is null), of events from `from` up to,
    not including, `until`. `dry_run` only counts."""

    status: DeliveryEnd | None = "failed"
    from_at: Instant | None = field(name="from", default=None)
    until: Instant | None = None
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class SubscriptionView(Answer, frozen=True, kw_only=True):
    """A subscription and its settings. Secrets are named, never shown."""

    name: str
    status: Literal["active", "paused"]
    url: str
    kinds: Sequence[EventKind]
    filter: RunFilter
    headers: Values
    signed_with: Sequence[str]
    queue: str
    priority: Priority
    retry: RetryPolicy
    timeout_s: float
    paused_at: Moment | None
    created_at: Moment
    updated_at: Moment


class SubscriptionRemoved(Answer, frozen=True, kw_only=True):
    """No further event is created for it; `cancelled_count` deliveries had not arrived, and will not."""

    name: str
    removed: bool = True
    cancelled_count: int


class Delivery(Answer, frozen=True, kw_only=True):
    """The delivery of one event to one subscriber. `id` is the job that delivers it, `run_job_id` the job that the event is
    about; `response_status` is that of the last answer. `GET /v1/jobs/{id}` has the event as it is sent, and every attempt."""

    id: UUID
    subscription: str
    kind: EventKind
    status: JobStatus
    execution_id: UUID
    run_job_id: UUID | None
    occurred_at: Moment | None
    attempt: int
    response_status: int | None
    error: Error | None
    reason: str | None
    submitted_at: Moment
    next_try_at: Moment | None
    ended_at: Moment | None


class DeliveriesReplayed(Answer, frozen=True, kw_only=True):
    """`replayed` lists the deliveries that are sent again; after a dry run it is empty. `has_more`: the limit was reached."""

    matched_count: int
    replayed: Sequence[UUID]
    dry_run: bool
    has_more: bool
