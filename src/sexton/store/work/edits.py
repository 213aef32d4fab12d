"""Rows of a one-time job that a person edits: the job and its live run, each locked before anything is decided."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Definition(NamedTuple):
    version: int
    queue: str
    lane: int
    name: str | None
    payload_json: str
    policy_json: str | None
    timeout_s: float | None
    tags: list[str] | None
    at_most_once: bool
    options_json: str | None  # registered options of its task


class LiveRun(NamedTuple):
    id: UUID
    state: str
    token: int


class Moved(NamedTuple):
    """A run whose time or state has changed."""

    queue: str
    is_ready: bool
    due_soon: bool


async def lock_job(connection: Connection, job_id: UUID) -> Definition | None:
    rows = await connection.fetch(_SQL["lock_job"], job_id)
    return Definition(*rows[0]) if rows else None


async def lock_run(connection: Connection, job_id: UUID) -> LiveRun | None:
    rows = await connection.fetch(_SQL["lock_run"], job_id)
    return LiveRun(*rows[0]) if rows else None


async def edit(
    connection: Connection,
    job_id: UUID,
    run_id: UUID,
    new: Definition,
    *,
    tags_gone: Collection[str],
    tags_new: Collection[str],
    is_timed: bool,
    run_at: datetime | None,
    delay_s: float | None,
    by: str | None,
    now: datetime | None = None,
) -> list[Moved]:
    """Writes the next version; `job_versions` keeps the old one. `is_timed`: the job is due at `run_at`, or in `delay_s`, or
    now."""
    rows = await connection.fetch(
        _SQL["edit"],
        now,
        job_id,
        run_id,
        *new[1:-1],
        list(tags_gone),
        list(tags_new),
        is_timed,
        run_at,
        delay_s,
        by,
    )
    return [Moved(*row) for row in rows]


async def make_limit(connection: Connection, new: Definition, *, now: datetime | None = None) -> None:
    """The numbers in a job create its limit if the key is new. A key without numbers must exist."""
    await connection.fetch(_SQL["make_limit"], now, new.policy_json, new.payload_json)


async def pause_job(
    connection: Connection, job_id: UUID, *, by: str | None, note: str | None, now: datetime | None = None
) -> None:
    await connection.fetch(_SQL["pause_job"], now, job_id, by, note)


async def pause_run(connection: Connection, run_id: UUID) -> None:
    await connection.fetch(_SQL["pause_run"], run_id)


async def note(connection: Connection, job_id: UUID, note: str | None) -> None:
    await connection.fetch(_SQL["note"], job_id, note)


async def resume_job(connection: Connection, job_id: UUID) -> None:
    await connection.fetch(_SQL["resume_job"], job_id)


async def resume_run(connection: Connection, run_id: UUID, *, now: datetime | None = None) -> list[Moved]:
    """Makes it waiting or ready again, by its due time."""
    return [Moved(*row) for row in await connection.fetch(_SQL["resume_run"], now, run_id)]


async def make_due(connection: Connection, run_id: UUID, *, now: datetime | None = None) -> list[Moved]:
    return [Moved(*row) for row in await connection.fetch(_SQL["make_due"], now, run_id)]


async def newest_letter(connection: Connection, job_id: UUID) -> UUID | None:
    rows = await connection.fetch(_SQL["newest_letter"], job_id)
    return rows[0]["id"] if rows else None
