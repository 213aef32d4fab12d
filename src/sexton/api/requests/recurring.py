"""Recurring jobs between the wire and the store: submitted, brought up to date by name, revised by an edit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.api.state import ApiState
from sexton.domain.schedule.document import OnName, ScheduleDocument
from sexton.errors import NotFound
from sexton.store.database import Connection
from sexton.store.views import transitions
from sexton.store.work import jobs, recurring, schedules
from sexton.store.work.jobs import JobView
from sexton.wire import JobEdit, JobRequest, RunRequest

from .revisions import revision_of
from .submissions import check_payload, schedule_of

SUBMITTED_BY = "api"
PLAN_LIMIT = 1_000  # so many are planned before the answer; more are left to the planners, or other callers would wait


class Stored(NamedTuple):
    job: JobView
    created: bool


class Written(NamedTuple):
    id: UUID
    created: bool


async def submit(state: ApiState, asked: JobRequest, *, on_name: OnName, trace: str | None, key: str | None) -> Stored:
    async with state.database.transaction() as connection:
        now = await transitions.mark(connection, now=state.clock.database_now())
        document = schedule_of(asked, now=now, on_name=on_name, submitted_by=SUBMITTED_BY, trace=trace, key=key)
        (written,) = await write(connection, [document], now=state.clock.database_now())
        return Stored(await jobs.show(connection, written.id), written.created)


async def write(connection: Connection, documents: Sequence[ScheduleDocument], *, now: datetime | None) -> list[Written]:
    if not documents:
        return []
    submit = recurring.submit if len(documents) <= PLAN_LIMIT else schedules.submit
    return [Written(one.id, one.created) for one in await submit(connection, documents, now=now)]


def payload_of(asked: RunRequest) -> msgspec.Raw | None:
    """Of a run by hand, checked as in a submission."""
    if asked.payload is msgspec.UNSET:
        return None
    check_payload(asked.payload)
    return asked.payload


async def edit(connection: Connection, job_id: UUID, asked: JobEdit, *, version: int | None, now: datetime | None) -> JobView:
    """Merges into the definition that stands, under its lock."""
    if await schedules.lock(connection, job_id) is None:
        raise NotFound(f"there is no job {job_id}")
    view = await jobs.show(connection, job_id)
    document = revision_of(asked, view, now=await transitions.mark(connection, now=now))
    return await recurring.edit(connection, job_id, document, version=version, now=now)
