"""Tenants, queues and limits by key: their settings and their current load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from sexton.domain.limit import COUNT_LIMIT, RUNNING_LIMIT, Limit, limit, standing_limit
from sexton.domain.sharing import (
    RATE_MAX,
    RUNNING_MAX_LIMIT,
    WAITING_MAX_LIMIT,
    WEIGHT_LIMIT,
    queue_settings,
    tenant_settings,
)
from sexton.domain.sharing import QueueSettings as DomainQueueSettings
from sexton.domain.sharing import TenantSettings as DomainTenantSettings

from .kinds import Answer, Moment, Request, Span, Word
from .retrying import RetryPolicy

# The domain checks what the schema declares, because its messages are better than a decoder's.
Running = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": RUNNING_LIMIT})]
Many = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": COUNT_LIMIT})]
Rate = Annotated[float, Meta(extra_json_schema={"minimum": 0.001, "maximum": RATE_MAX})]
ShareStatus = Literal["active", "paused"]


class LimitRule(Request, frozen=True, kw_only=True):
    """The limit of the runs of a job: `running` at once, or `count` starts per `per`, over the whole cluster. The key may
    contain `{payload.path}`. The numbers only create the limit if the key is new; later `PUT /v1/limits/{key}` sets them."""

    key: Word
    running: Running | None = None
    count: Many | None = None
    per: Span | None = None
    burst: Many | None = None
    ordered: bool = False

    def to_domain(self) -> Limit:
        return limit(self.key, running=self.running, count=self.count, per=self.per, burst=self.burst, ordered=self.ordered)


class LimitSettings(Request, frozen=True, kw_only=True):
    """`running` at once, or `count` starts per `per`, or both."""

    running: Running | None = None
    count: Many | None = None
    per: Span | None = None
    burst: Many | None = None
    ordered: bool = False

    def to_domain(self, key: str) -> Limit:
        return standing_limit(key, running=self.running, count=self.count, per=self.per, burst=self.burst, ordered=self.ordered)


class TenantSettings(Request, frozen=True, kw_only=True):
    """All settings of a tenant; fields that you leave out have their default, which is no limit."""

    weight: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": WEIGHT_LIMIT})] = 1
    running_max: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": RUNNING_MAX_LIMIT})] | None = None
    waiting_max: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": WAITING_MAX_LIMIT})] | None = None
    submit_rate: Rate | None = None
    submit_burst: Many | None = None
    jitter: Span | None = None

    def to_domain(self) -> DomainTenantSettings:
        return tenant_settings(**_given(self))


class QueueSettings(Request, frozen=True, kw_only=True):
    """All settings of a queue; fields that you leave out have their default."""

    release_rate: Rate | None = None
    release_burst: Many | None = None
    ageing: Span | None = None
    timeout: Span | None = None
    jitter: Span | None = None
    retry: RetryPolicy | None = None

    def to_domain(self) -> DomainQueueSettings:
        return queue_settings(**{**_given(self), "retry": None if self.retry is None else self.retry.to_domain()})


class ShareStatusChange(Request, frozen=True, kw_only=True):
    """A command to a tenant or a queue: pause it, or resume it."""

    status: ShareStatus
    note: Annotated[str, Meta(max_length=500)] | None = None


class Load(Answer, frozen=True, kw_only=True):
    """The current load of a tenant or a queue."""

    name: str
    status: ShareStatus = "active"
    ready_count: int
    running_count: int
    waiting_count: int
    parked_count: int = 0
    capped: bool
    paused_at: Moment | None = None
    paused_by: str | None = None
    note: str | None = None
    updated_at: Moment | None = None

    @property
    def has_runs(self) -> bool:
        return self.ready_count + self.running_count + self.waiting_count + self.parked_count > 0


class QueueView(Load, frozen=True, kw_only=True):
    """Its load and its settings. Counts stop at 10,000 (`capped`), so that a long queue costs no more than a short one."""

    oldest_ready_s: float | None
    worker_count: int
    release_rate: float | None = None
    release_burst: int | None = None
    ageing_s: float | None = None
    timeout_s: float | None = None
    jitter_s: float | None = None
    retry: RetryPolicy | None = None


class TenantView(Load, frozen=True, kw_only=True):
    """Its load and its settings; a tenant without settings has the defaults, and no `updated_at`."""

    weight: int = 1
    running_max: int | None = None
    waiting_max: int | None = None
    submit_rate: float | None = None
    submit_burst: int | None = None
    jitter_s: float | None = None


class LimitHolder(Answer, frozen=True, kw_only=True):
    """A run that holds a slot of a limit."""

    run_id: UUID
    job_id: UUID
    handler: str
    tenant: str
    worker_id: UUID | None
    worker: str | None
    since: Moment | None


class LimitView(Answer, frozen=True, kw_only=True):
    """A limit, the runs that hold it (the longest first, 1,000 at most; not in a list) and how many wait. Counts stop at
    10,000, in a list at 1,000 (`capped`)."""

    key: str
    running: int | None
    count: int | None
    per_s: float | None
    burst: int | None
    ordered: bool
    tokens: int | None
    held_count: int
    parked_count: int
    capped: bool
    made_by: str | None
    updated_at: Moment
    holders: Sequence[LimitHolder] = ()


class Removed(Answer, frozen=True, kw_only=True):
    """The settings were removed."""

    name: str
    removed: bool = True


def _given(settings: Request) -> dict[str, Any]:
    return {field: value for field in settings.__struct_fields__ if (value := getattr(settings, field)) is not None}
