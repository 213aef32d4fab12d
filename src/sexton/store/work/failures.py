"""Fires that failed for good, of jobs with `pause_after`. They are written together with a dead letter
(`sexton.bury_recurring`), so that a replayed or discarded letter still counts. A job without `pause_after` has none."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Failing(NamedTuple):
    job_id: UUID
    failed_count: int  # consecutive failed fires
    error: str  # of the newest


async def consecutive(connection: Connection, job_ids: Collection[UUID]) -> list[Failing]:
    return [Failing(*row) for row in await connection.fetch(_SQL["consecutive"], list(job_ids))]


async def reached(connection: Connection, *, limit: int) -> list[UUID]:
    """Jobs that may have to pause."""
    return [row["job_id"] for row in await connection.fetch(_SQL["reached"], limit)]


async def clear(connection: Connection, job_id: UUID) -> None:
    """Restarts the count."""
    await connection.fetch(_SQL["clear"], job_id)


async def forget(connection: Connection) -> None:
    await connection.fetch(_SQL["forget"])
