"""Operations of a caller on a job of either kind. Chooses the operation by the kind of the job.

Each call needs a transaction."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from sexton.domain.fault import Invalid
from sexton.operations.recurring import recurring_jobs
from sexton.operations.recurring.recurring_jobs import NO_NOTE, Pause
from sexton.store import clock as database_clock
from sexton.store.database import Connection
from sexton.store.uuid7 import is_recurring
from sexton.store.work import jobs
from sexton.store.work.jobs import JobView

from . import one_time_jobs
from .caller import Caller


async def pause(
    connection: Connection, caller: Caller, job_id: UUID, asked: Pause = NO_NOTE, *, now: datetime | None = None
) -> JobView:
    """The job does not start, or fire, until it is resumed. A recurring job may resume by itself at `resume_at`."""
    if asked.resume_at is not None:
        if not is_recurring(job_id):
            raise Invalid("resume_at", "is only for a recurring job; leave it out")
        if asked.resume_at <= await database_clock.now(connection, now=now):
            raise Invalid("resume_at", "is in the past")
    if is_recurring(job_id):
        return await recurring_jobs.pause(connection, caller, job_id, asked, now=now)
    return await one_time_jobs.pause(connection, caller, job_id, note=asked.note, now=now)


async def resume(connection: Connection, caller: Caller, job_id: UUID, *, now: datetime | None = None) -> JobView:
    operation = recurring_jobs.resume if is_recurring(job_id) else one_time_jobs.resume
    return await operation(connection, caller, job_id, now=now)


async def run_now(
    connection: Connection, caller: Caller, job_id: UUID, *, payload: msgspec.Raw | None = None, now: datetime | None = None
) -> JobView:
    """A recurring job fires once outside its schedule, with its own payload if one is given. A waiting one-time job is due
    now."""
    if is_recurring(job_id):
        return await recurring_jobs.fire(connection, caller, job_id, payload=payload, now=now)
    if payload is not None:
        await jobs.show(connection, job_id)
        raise Invalid("payload", "is for a run of a recurring job; edit this one-time job instead")
    return await one_time_jobs.run_now(connection, caller, job_id, now=now)
