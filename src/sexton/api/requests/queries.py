"""The queries of the calls that take one. Unknown parameters are errors."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from sexton.wire import ExecutionStatus, Instant, JobStatus, Word

Limit = Annotated[int, Meta(ge=1, le=500, description="Items per page.")]
Cursor = Annotated[str, Meta(max_length=200, description="`next_cursor` of the previous page, with the same filters.")]


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class PageQuery(Query, frozen=True, kw_only=True):
    limit: Limit = 50
    cursor: Cursor | None = None


class WorkQuery(PageQuery, frozen=True, kw_only=True):
    """Filters that every list of work has."""

    handler: Word | None = None
    tenant: Word | None = None
    queue: Word | None = None


OnName = Annotated[
    Literal["refuse", "update"],
    Meta(description="For recurring jobs: whether to refuse or to update one whose name already exists."),
]


class SubmitQuery(Query, frozen=True, kw_only=True):
    on_name: OnName = "refuse"


class EditQuery(Query, frozen=True, kw_only=True):
    preview: Annotated[bool, Meta(description="For a recurring job: only show which fires the edit adds and removes.")] = False


class StatusQuery(Query, frozen=True, kw_only=True):
    preview: Annotated[bool, Meta(description="For `active` on a paused recurring job: only show what would fire.")] = False


class JobsQuery(WorkQuery, frozen=True, kw_only=True):
    kind: Annotated[Literal["once", "recurring"], Meta(description="One-time or recurring jobs only.")] | None = None
    status: JobStatus | None = None
    name: Word | None = None
    tag: Word | None = None
    submitted_from: Instant | None = None
    submitted_until: Instant | None = None


class JobQuery(Query, frozen=True, kw_only=True):
    wait: (
        Annotated[
            str,
            Meta(
                description="Answer when the job has ended, or after this long: `10s`, or a number of seconds, 60s at most.",
                examples=["10s"],
            ),
        ]
        | None
    ) = None


class BatchQuery(Query, frozen=True, kw_only=True):
    partial: Annotated[bool, Meta(description="Submit the valid jobs and name the others, instead of all or nothing.")] = False
    on_name: OnName = "refuse"


class ExecutionsQuery(WorkQuery, frozen=True, kw_only=True):
    job_id: UUID | None = None
    status: ExecutionStatus | None = None
    started_from: Instant | None = None
    started_until: Instant | None = None


class JobExecutionsQuery(PageQuery, frozen=True, kw_only=True):
    pass


class DeadLettersQuery(WorkQuery, frozen=True, kw_only=True):
    permanent: bool | None = None


class LimitsQuery(Query, frozen=True, kw_only=True):
    prefix: Annotated[Word, Meta(description="Only keys that begin with this.")] | None = None
    limit: Limit = 100
    cursor: Annotated[str, Meta(max_length=2000, description="`next_cursor` of the previous page.")] | None = None


class SubscriptionsQuery(Query, frozen=True, kw_only=True):
    limit: Limit = 100
    cursor: Annotated[str, Meta(max_length=200, description="`next_cursor` of the previous page.")] | None = None


class DeliveriesQuery(PageQuery, frozen=True, kw_only=True):
    status: JobStatus | None = None
    submitted_from: Instant | None = None
    submitted_until: Instant | None = None


class EventsQuery(Query, frozen=True, kw_only=True):
    job_id: UUID | None = None
    tenant: Word | None = None
    queue: Word | None = None
    handler: Word | None = None
    type: Literal["submitted", "started", "ended", "retrying", "dead_lettered"] | None = None
