"""Definitions: submit, read, await. Submission has one SQL path, `sexton.submit_jobs`, for every caller."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.job import Submission
from sexton.errors import NotFound
from sexton.store.database import Connection, Row
from sexton.store.sql import statements
from sexton.store.uuid7 import hour_before, is_recurring

from .with_error import WithError

_SQL = statements(__name__)
SUBMIT = _SQL["submit"]
_OWN = 29  # columns of the job itself; those of its live run follow
_NO_PAYLOAD = msgspec.Raw(b"{}")
_encode = msgspec.json.Encoder().encode


class Submitted(NamedTuple):
    id: UUID
    created: bool  # false: a job with this idempotency key, or an equal unique job, already existed


class Tried(NamedTuple):
    """A job of a batch that was divided. Without an id it was not submitted."""

    id: UUID | None
    created: bool | None
    waits_for: str | None  # what another transaction holds; None: the job was submitted, or rejected for another reason


class Execution(WithError, msgspec.Struct, frozen=True):
    """One attempt. The one that runs now has no id and no end yet, and the status `running`."""

    id: UUID | None
    job_id: UUID
    run_id: UUID
    worker_id: UUID | None
    fire_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
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


class JobView(msgspec.Struct, frozen=True):
    """A job in its current state: its definition, and what its run, its ending and its newest attempt add."""

    id: UUID
    version: int
    task: str
    tenant: str
    queue: str
    lane: int
    name: str | None
    payload_json: str
    policy_json: str | None
    timeout_s: float | None
    at_most_once: bool
    idempotency_key: str | None
    tags: list[str] | None
    submitted_at: datetime
    submitted_by: str | None
    trace: str | None
    paused_at: datetime | None
    paused_by: str | None
    note: str | None  # of the person who paused it
    status: str
    next_fire_at: datetime | None
    run_at: datetime | None  # of a one-time job: the instant that was submitted; null if its history was dropped
    attempt: int  # attempts started so far that count
    ended_at: datetime | None
    execution_id: UUID | None  # the execution that ended it
    schedule_json: str | None  # of a recurring job
    recurrence_json: str | None
    resume_at: datetime | None  # when its pause ends by itself
    over_reason: str | None  # why its schedule is over
    last_execution: Execution | None


class Ending(WithError, msgspec.Struct, frozen=True):
    status: str
    result_json: str | None
    error_json: str | None
    reason: str | None


class LiveOutput(NamedTuple):
    progress_json: str | None
    output: str | None


class _Alike(msgspec.Struct, frozen=True):
    """Jobs that differ only in their payload, as `sexton.submit_jobs` also takes them: 20 % less CPU on the server."""

    job: Submission
    payloads: list[msgspec.Raw]


def encode_submissions(submissions: Sequence[Submission]) -> str:
    return _encode(_alike(submissions) or submissions).decode()


def _alike(submissions: Sequence[Submission]) -> _Alike | None:
    """0.4 µs per job, and next to nothing if the first ones differ."""
    first = submissions[0] if len(submissions) > 1 else None
    if first is None or first.key is not None or first.unique is not None or first.tags is not None:
        return None
    job = msgspec.structs.replace(first, payload=_NO_PAYLOAD)
    if any(msgspec.structs.replace(one, payload=_NO_PAYLOAD) != job for one in submissions):
        return None
    return _Alike(job, [one.payload for one in submissions])


async def submit(
    connection: Connection, submissions: Sequence[Submission], *, notify: bool = True, now: datetime | None = None
) -> list[Submitted]:
    return await submit_documents(connection, encode_submissions(submissions), notify=notify, now=now)


async def submit_documents(
    connection: Connection, documents: str, *, notify: bool = True, now: datetime | None = None
) -> list[Submitted]:
    """As `submit`, for documents that `encode_submissions` made."""
    return [Submitted(*row) for row in await connection.fetch(SUBMIT, documents, notify, now)]


async def submit_and_show(
    connection: Connection, submissions: Sequence[Submission], *, notify: bool = True, now: datetime | None = None
) -> list[tuple[Submitted, JobView | None]]:
    """As `submit`, and returns a view of each new job in the same round trip; None for a job that already existed."""
    rows = await connection.fetch(_SQL["submit_and_show"], encode_submissions(submissions), notify, now)
    return [
        (Submitted(row["id"], row["created"]), _new_view(row, submission) if row["created"] else None)
        for row, submission in zip(rows, submissions, strict=True)
    ]


async def submit_each(
    connection: Connection, submissions: Sequence[Submission], *, notify: bool = True, now: datetime | None = None
) -> list[Tried]:
    """Each by itself, in one round trip; those that would have to wait for another transaction are not submitted."""
    documents = _encode(submissions).decode()
    return [Tried(*row) for row in await connection.fetch(_SQL["submit_each"], documents, notify, now)]


async def show(connection: Connection, job_id: UUID) -> JobView:
    shown = await show_many(connection, [job_id])
    if not shown:
        raise NotFound(f"there is no job {job_id}")
    return shown[0]


async def show_many(connection: Connection, job_ids: Sequence[UUID]) -> list[JobView]:
    """In the order given; jobs that do not exist are left out."""
    if not job_ids:
        return []
    rows = await connection.fetch(_SQL["show"], job_ids, min(job_ids), max(job_ids))
    ended = [row["execution_id"] for row in rows if row["execution_id"] is not None]
    begun = [
        row
        for row in rows
        if row["schedule"] is not None
        or (row["status"] in ("pending", "paused") and (row["token"] or row["origin"] == "replay"))
    ]
    newest = {one.job_id: one for one in await tries(connection, ended)}
    newest |= {one.job_id: one for one in await _last_tries(connection, begun)}
    newest |= {row["id"]: _running(row) for row in rows if row["status"] == "running"}
    return [_view(row, newest.get(row["id"])) for row in rows]


async def tries(connection: Connection, execution_ids: Sequence[UUID]) -> list[Execution]:
    """In the order given; executions that do not exist (any more) are left out."""
    if not execution_ids:
        return []
    rows = await connection.fetch(_SQL["tries"], execution_ids, min(execution_ids), max(execution_ids))
    return [Execution(*row) for row in rows]


async def _last_tries(connection: Connection, rows: Sequence[Row]) -> list[Execution]:
    if not rows:
        return []
    ids, run_ids, tokens = zip(*((row["id"], row["run_id"], row["token"]) for row in rows), strict=True)
    found = await connection.fetch(_SQL["last_tries"], ids, run_ids, tokens, min(map(oldest_execution, ids)))
    return [Execution(*row) for row in found]


async def ending(connection: Connection, job_id: UUID) -> Ending | None:
    rows = await connection.fetch(_SQL["ending"], job_id)
    if not rows:
        return None
    last = next(iter(await tries(connection, [rows[0]["execution_id"]])), None)  # history may be dropped before its job
    status: str = rows[0]["status"]
    return Ending(status, None, None, None) if last is None else Ending(status, last.result_json, last.error_json, last.reason)


async def executions(connection: Connection, job_id: UUID) -> list[Execution]:
    """Every attempt so far, oldest first."""
    rows = await connection.fetch(_SQL["executions"], job_id, oldest_execution(job_id))
    return [Execution(*row) for row in rows]


def oldest_execution(job_id: UUID) -> UUID:
    """An id that skips partitions: no execution of a one-time job is more than an hour older than the id of the job, even if
    the clock was set back."""
    return UUID(int=0) if is_recurring(job_id) else hour_before(job_id)


async def live_output(connection: Connection, job_id: UUID) -> LiveOutput | None:
    rows = await connection.fetch(_SQL["live_output"], job_id)
    return LiveOutput(*rows[0]) if rows else None


def _new_view(row: Row, submission: Submission) -> JobView:
    """A new one-time job: not paused, never tried, not ended. An instant of the past is due now."""
    job_id, _, *own, due_at = row
    return JobView(*(job_id, *own, *(None,) * 3, "pending", due_at, submission.run_at or due_at, 0, *(None,) * 7))


def _running(row: Row) -> Execution:
    return Execution(
        id=None,
        job_id=row["id"],
        run_id=row["run_id"],
        worker_id=row["worker_id"],
        fire_at=row["fire_at"],
        due_at=row["due_at"],
        started_at=row["claimed_at"],
        ended_at=None,
        token=row["token"],
        job_version=row["job_version"],
        attempt=row["attempt"],
        origin=row["origin"],
        status="running",
        queue=row["queue"],
        tenant=row["tenant"],
        task=row["task"],
        reason=None,
        error_json=None,
        result_json=None,
        progress_json=row["progress"],
        output=row["output"],
    )


def _view(row: Row, newest: Execution | None) -> JobView:
    view = JobView(*(*row[:_OWN], newest))
    if row["run_id"] is None and newest is not None:  # it has ended
        run_at = None if view.schedule_json is not None else newest.fire_at
        view = msgspec.structs.replace(view, attempt=newest.attempt, run_at=run_at)
    return view
