"""Definitions: submit, look at, cancel, await. Submission has one SQL path, `sexton.submit_jobs`, for every caller."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain import run
from sexton.domain.job import Submission
from sexton.domain.outcome import Cancelled, ErrorInfo
from sexton.errors import NotAllowedIn, NotFound

from . import runs
from .database import Connection
from .sql import statements

_SQL = statements("jobs")
SUBMIT = _SQL["submit"]
_encode = msgspec.json.Encoder().encode
_NO_DICE = Random(0)  # noqa: S311  (a cancellation draws nothing)


class Submitted(NamedTuple):
    id: UUID
    created: bool  # false: an idempotency key or a unique job stood already


class JobView(msgspec.Struct, frozen=True):
    id: UUID
    version: int
    task: str
    tenant: str
    queue: str
    lane: int
    name: str | None
    payload_json: str
    tags: list[str] | None
    submitted_at: datetime
    submitted_by: str | None
    status: str
    next_fire_at: datetime | None
    attempt: int | None
    ended_at: datetime | None
    execution_id: UUID | None


class Execution(msgspec.Struct, frozen=True):
    id: UUID
    job_id: UUID
    run_id: UUID
    worker_id: UUID | None
    fire_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime
    token: int
    job_version: int
    attempt: int
    origin: str
    status: str
    queue: str
    tenant: str
    task: str
    reason: str | None
    error_json: str | None
    result_json: str | None
    progress_json: str | None
    output: str | None

    @property
    def error(self) -> ErrorInfo | None:
        return ErrorInfo.from_json(self.error_json)


class Ending(NamedTuple):
    status: str
    result_json: str | None
    error_json: str | None
    reason: str | None

    @property
    def error(self) -> ErrorInfo | None:
        return ErrorInfo.from_json(self.error_json)


class LiveOutput(NamedTuple):
    progress_json: str | None
    output: str | None


class Cancellation(NamedTuple):
    ended_count: int  # runs that will never start
    asked_count: int  # running ones, asked to stop


def encode_submissions(submissions: Sequence[Submission]) -> str:
    return _encode(submissions).decode()


async def submit(
    connection: Connection, submissions: Sequence[Submission], *, notify: bool = True, now: datetime | None = None
) -> list[Submitted]:
    rows = await connection.fetch(SUBMIT, encode_submissions(submissions), notify, now)
    return [Submitted(*row) for row in rows]


async def show(connection: Connection, job_id: UUID) -> JobView:
    rows = await connection.fetch(_SQL["status"], job_id)
    if not rows:
        raise NotFound(f"there is no job {job_id}")
    return JobView(*rows[0])


async def ending(connection: Connection, job_id: UUID) -> Ending | None:
    rows = await connection.fetch(_SQL["ending"], job_id)
    return Ending(*rows[0]) if rows else None


async def executions(connection: Connection, job_id: UUID) -> list[Execution]:
    """Every try so far, oldest first. None is an hour older than a one-time job's own id, whatever became of the clock."""
    oldest = UUID(int=max(job_id.int - (3_600_000 << 80), 0) if job_id.int >> 127 == 0 else 0)
    rows = await connection.fetch(_SQL["executions"], job_id, oldest)
    return [Execution(*row) for row in rows]


async def live_output(connection: Connection, job_id: UUID) -> LiveOutput | None:
    rows = await connection.fetch(_SQL["live_output"], job_id)
    return LiveOutput(*rows[0]) if rows else None


async def cancel(
    connection: Connection, job_id: UUID, *, reason: str = "cancelled on request", now: datetime | None = None
) -> Cancellation:
    """Ends what has not started and asks what runs to stop. Lock, then decide: call it inside a transaction."""
    leases = await runs.of_job(connection, job_id)
    if not leases:
        raise NotAllowedIn("cancel", (await show(connection, job_id)).status)
    pending = [lease for lease in leases if lease.worker_id is None]
    running = [lease.run_id for lease in leases if lease.worker_id is not None]
    if pending:
        await runs.finish(connection, [run.report(lease, Cancelled(reason), _NO_DICE) for lease in pending], now=now)
    if running:
        await runs.request_cancel(connection, running, now=now)
        await connection.fetch("SELECT pg_notify('sexton_cancel', '')")
    return Cancellation(len(pending), len(running))
