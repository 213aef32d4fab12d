"""Workers over HTTP: rows of `workers` like any other, with their own lease, because they send heartbeats less often."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.sql import statements

from .workers import Held as Held

_SQL = statements(__name__)


class RemoteWorker(NamedTuple):
    """A worker as it describes itself."""

    id: UUID
    name: str
    queues: Sequence[str]
    tasks: Sequence[str]
    limit: int  # runs that it claims at once
    concurrency: int
    lease_s: float
    holding: Collection[UUID] | None


class Attendance(NamedTuple):
    is_present: bool
    is_new: bool
    is_ours: bool  # the id belongs to a Sexton worker; otherwise a worker that is not present was declared dead
    suspects_wait: bool  # in its queues, with its tasks


async def attend(connection: Connection, worker: RemoteWorker, *, now: datetime | None = None) -> Attendance:
    given = (now, worker.id, worker.name, list(worker.queues), list(worker.tasks), worker.concurrency, worker.lease_s)
    (row,) = await connection.fetch(_SQL["attend"], *given)
    return Attendance(*row)


async def beat(connection: Connection, worker_id: UUID, *, draining: bool = False, now: datetime | None = None) -> float | None:
    """Its lease in seconds; `None` if the remote worker no longer exists."""
    rows = await connection.fetch(_SQL["beat"], now, worker_id, draining)
    return float(rows[0]["lease_s"]) if rows else None


async def held(connection: Connection, worker_id: UUID, *, now: datetime | None = None) -> list[Held]:
    return [Held(*row) for row in await connection.fetch(_SQL["held"], now, worker_id)]


async def with_work(connection: Connection, queues: Collection[str]) -> list[str]:
    """Those of these queues that have ready runs or suspects, for any task."""
    return [row["name"] for row in await connection.fetch(_SQL["with_work"], list(queues))]


async def leave(connection: Connection, worker_id: UUID) -> None:
    """Not while it holds runs: the sweeper handles those first."""
    await connection.fetch(_SQL["leave"], worker_id)
