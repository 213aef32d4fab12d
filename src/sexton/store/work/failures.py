"""Fires that failed for good, of the jobs that are to pause after so many in a row. They are written where a dead letter is
(`sexton.bury_recurring`), so that a replayed or discarded letter still counts; a job without `pause_after` has none."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Failing(NamedTuple):
    job_id: UUID
    failed_count: int  # fires in a row that failed
    said: str  # the error of the newest


async def in_a_row(connection: Connection, job_ids: Collection[UUID]) -> list[Failing]:
    return [Failing(*row) for row in await connection.fetch(_SQL["in_a_row"], list(job_ids))]


async def clear(connection: Connection, job_id: UUID) -> None:
    """Counted anew from here."""
    await connection.fetch(_SQL["clear"], job_id)


async def forget(connection: Connection) -> None:
    await connection.fetch(_SQL["forget"])
