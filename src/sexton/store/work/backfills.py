"""Rows of a backfill: which fires of a past range have run, and the new runs of the missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Handled(NamedTuple):
    fire_at: datetime
    how: str  # ran, lives or buried


async def history_from(connection: Connection) -> datetime:
    """The instant from which history is kept."""
    (row,) = await connection.fetch(_SQL["history_from"])
    known_from: datetime = row["known_from"]
    return known_from


async def handled(connection: Connection, job_id: UUID, *, from_at: datetime, until: datetime, oldest: UUID) -> list[Handled]:
    return [Handled(*row) for row in await connection.fetch(_SQL["handled"], job_id, from_at, until, oldest)]


async def write(
    connection: Connection,
    job_id: UUID,
    fires: Sequence[datetime],
    *,
    spacing_s: float,
    is_alone: bool,
    now: datetime | None = None,
) -> list[datetime]:
    """Returns when each new run is due."""
    rows = await connection.fetch(_SQL["write"], now, job_id, fires, spacing_s, is_alone)
    return [row["due_at"] for row in rows]
