"""The options of a job as requests and answers spell them.

Made by `make docs` from `sexton.domain.job_options`; edit that instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from sexton.domain.job import TAG_LIMIT, Delivery, Priority
from sexton.domain.schedule.catch_up import Policy as CatchUpPolicy
from sexton.domain.schedule.overlap import Policy as OverlapPolicy

from .handlers import TargetHandler
from .kinds import Answer, Instant, JobStatus, Moment, Span, Word
from .retrying import RetryPolicy
from .schedules import CatchUpRule, OverlapRule, Schedule
from .sharing import LimitRule
from .unique import UniqueRule


class JobOptions(Schedule, frozen=True, kw_only=True):
    """What a request may set for a job, beside its handler and its payload."""

    run_at: Instant | None = None
    delay: Span | None = None
    tenant: Word | None = None
    queue: Word | None = None
    priority: Priority | None = None
    delivery: Delivery | None = None
    name: Word | None = None
    tags: Annotated[tuple[Word, ...], Meta(max_length=TAG_LIMIT)] | None = None
    retry: RetryPolicy | None = None
    timeout: Span | None = None
    deadline: Span | None = None
    start_within: Span | None = None
    lease: Span | None = None
    progress_within: Span | None = None
    grace: Span | None = None
    max_lost: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    limit: Word | LimitRule | None = None
    unique: bool | UniqueRule | None = None
    idempotency_key: Word | None = None
    idempotency_ttl: Span | None = None
    overlap: OverlapPolicy | OverlapRule | None = None
    catch_up: CatchUpPolicy | CatchUpRule | None = None
    on_resume: CatchUpPolicy | None = None
    pause_after: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class ShownOptions(Answer, frozen=True, kw_only=True):
    """What an answer about a job begins with: which job it is, and its options."""

    id: UUID
    status: JobStatus
    version: int
    handler: str | TargetHandler
    payload: msgspec.Raw
    run_at: Moment | None = None
    tenant: str
    queue: str
    priority: Priority
    delivery: Delivery
    name: str | None = None
    tags: Sequence[str] = ()
    retry: RetryPolicy | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    start_within_s: float | None = None
    lease_s: float | None = None
    progress_within_s: float | None = None
    grace_s: float | None = None
    max_lost: int | None = None
    limit: LimitRule | None = None
    idempotency_key: str | None = None
    overlap: OverlapRule | None = None
    catch_up: CatchUpRule | None = None
    on_resume: CatchUpPolicy | None = None
    pause_after: int | None = None
