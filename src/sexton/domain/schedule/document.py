"""A recurring job as it is submitted: the document that `sexton.submit_schedules` takes, made of a checked job and a checked
rule."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from sexton.domain.job import Policy, Submission
from sexton.domain.limit import Limit

from .dialects import warnings
from .recurrence import Recurrence, seed_of
from .rule import Schedule

_NO_ID = UUID(int=0)
OnName = Literal["refuse", "update"]


class ScheduleDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field that is left out comes from the task's options, then from the defaults."""

    task: str
    schedule: Schedule | msgspec.Raw
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    recurrence: Recurrence | msgspec.Raw | None = None
    on_name: OnName = "update"
    queue: str | None = None
    lane: int | None = None
    tenant: str | None = None
    name: str | None = None
    timeout_s: float | None = None  # 0: no limit
    at_most_once: bool | None = None
    policy: Policy | msgspec.Raw | None = None
    tags: tuple[str, ...] | None = None
    limit: Limit | msgspec.Raw | None = None
    submitted_by: str | None = None
    trace: str | None = None


def document(job: Submission, schedule: Schedule, recurrence: Recurrence, *, on_name: OnName = "update") -> ScheduleDocument:
    """Leaves out what only a one-time job has (its time, its idempotency key, its unique key)."""
    return ScheduleDocument(
        task=job.task,
        schedule=schedule,
        payload=job.payload,
        recurrence=None if recurrence == Recurrence() else recurrence,
        on_name=on_name,
        queue=job.queue,
        lane=job.lane,
        tenant=job.tenant,
        name=job.name,
        timeout_s=job.timeout_s,
        at_most_once=job.at_most_once,
        policy=job.policy,
        tags=job.tags,
        limit=job.limit,
        submitted_by=job.submitted_by,
        trace=job.trace,
    )


def warnings_of(document: ScheduleDocument, *, after: datetime) -> list[str]:
    """What is accepted, but may be meant differently: a cron line that another program reads in another way."""
    if not isinstance(document.schedule, Schedule):
        return []
    return warnings(document.schedule, after=after, seed=seed_of(document.tenant or "default", document.name, _NO_ID))
