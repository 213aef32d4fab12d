"""Dead letters: list, replay, discard. A replay consumes the letter, so no run is replayed twice."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.store.database import Connection
from sexton.store.sql import statements

from .with_error import WithError

_SQL = statements(__name__)


class DeadLetter(WithError, msgspec.Struct, frozen=True):
    id: UUID
    job_id: UUID
    run_id: UUID
    fire_at: datetime
    buried_at: datetime
    replay_at: datetime | None
    job_version: int
    seq: int
    attempts: int
    lost_count: int
    lane: int
    permanent: bool
    origin: str
    status: str
    queue: str
    tenant: str
    task: str
    reason: str
    name: str | None
    error_json: str | None
    payload_json: str


class Filter(msgspec.Struct, frozen=True):
    """Which dead letters; a null field matches all."""

    ids: Collection[UUID] | None = None
    task: str | None = None
    tenant: str | None = None
    queue: str | None = None
    permanent: bool | None = None


class ReplayedRun(NamedTuple):
    run_id: UUID
    job_id: UUID


async def find(connection: Connection, chosen: Filter, *, before: UUID | None = None, limit: int = 100) -> list[DeadLetter]:
    ids = None if chosen.ids is None else list(chosen.ids)
    rows = await connection.fetch(_SQL["list"], ids, chosen.task, chosen.tenant, chosen.queue, chosen.permanent, before, limit)
    return [DeadLetter(*row) for row in rows]


async def find_ids(connection: Connection, chosen: Filter, *, limit: int) -> list[UUID]:
    """Newest first."""
    ids = None if chosen.ids is None else list(chosen.ids)
    rows = await connection.fetch(_SQL["ids"], ids, chosen.task, chosen.tenant, chosen.queue, chosen.permanent, limit)
    return [row["id"] for row in rows]


async def replay(
    connection: Connection, ids: Collection[UUID], *, now: datetime | None = None
) -> list[tuple[ReplayedRun, str]]:
    """Their new runs, each with its queue. A letter that another replay has taken is left out."""
    rows = await connection.fetch(_SQL["replay"], now, list(ids))
    return [(ReplayedRun(row["id"], row["job_id"]), row["queue"]) for row in rows]


async def release_keys(connection: Connection, job_ids: Collection[UUID]) -> None:
    """Deletes their idempotency keys, so that the effect may happen again."""
    await connection.fetch(_SQL["release_keys"], list(job_ids))


async def due_for_replay(connection: Connection, *, limit: int, now: datetime | None = None) -> list[UUID]:
    return [row["id"] for row in await connection.fetch(_SQL["due_for_replay"], now, limit)]


async def discard(connection: Connection, ids: Collection[UUID]) -> list[UUID]:
    return [row["id"] for row in await connection.fetch(_SQL["discard"], list(ids))]


async def expire(connection: Connection, *, keep_s: float, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["expire"], now, keep_s)
