"""Workers and scheduler nodes: which are alive, and which have stopped sending heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Held(NamedTuple):
    """A lease in the database."""

    run_id: UUID
    job_id: UUID
    token: int
    cancel_requested: bool
    at_most_once: bool
    held_s: float = 0.0  # of those of a remote worker


class Beaten(NamedTuple):
    """The result of a heartbeat."""

    held: list[Held]
    is_ready: bool  # a run, in the queues it asked for
    is_overdue: bool  # work that schedulers should have done long ago


class Survey(NamedTuple):
    """An overview for a scheduler: the heartbeat of every live worker, and whether there is work for the scheduler."""

    beats: dict[UUID, int]
    running: bool  # any run: a worker without heartbeats may hold it
    abandoned: bool
    overrunning: bool
    expired: bool
    to_plan: bool  # schedules that are due for planning, or fires to be taken back
    leases_s: Mapping[UUID, float]  # of remote workers; all others use the cluster's lease


class Worker(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    queues: list[str]
    tasks: list[str]
    concurrency: int
    started_at: datetime
    beat_at: datetime
    lost_at: datetime | None
    draining: bool
    running_count: int
    refused_count: int


class Node(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    started_at: datetime
    beat_at: datetime
    partitions: list[int]


async def enlist(
    connection: Connection,
    worker_id: UUID,
    *,
    name: str,
    queues: Sequence[str],
    tasks: Sequence[str],
    concurrency: int,
    now: datetime | None = None,
) -> None:
    await connection.fetch(_SQL["enlist"], now, worker_id, name, queues, tasks, concurrency)


async def register_tasks(connection: Connection, options: Mapping[str, object], *, now: datetime | None = None) -> None:
    documents = [{"name": name, "options": option} for name, option in options.items()]
    await connection.fetch(_SQL["register_tasks"], now, msgspec.json.encode(documents).decode())


async def beat(
    connection: Connection,
    worker_id: UUID,
    *,
    running_count: int,
    draining: bool,
    refused_count: int,
    queues: Sequence[str] = (),
    overdue_s: float | None = None,
    only: Sequence[UUID] | None = None,
    now: datetime | None = None,
) -> Beaten | None:
    """The leases of this worker in the database, of all runs or `only` of these, and whether there is work, unless `overdue_s`
    is null; `None` if the worker was declared dead."""
    given = (now, worker_id, running_count, draining, refused_count, queues, overdue_s, only)
    rows = await connection.fetch(_SQL["beat"], *given)
    if not rows:
        return None
    return Beaten([Held(*row[:5]) for row in rows if row["id"] is not None], rows[0]["is_ready"], rows[0]["is_overdue"])


async def leased(connection: Connection, worker_id: UUID) -> list[Held]:
    """All leases of this worker in the database."""
    return [Held(*row) for row in await connection.fetch(_SQL["leased"], worker_id)]


async def leave(connection: Connection, worker_id: UUID) -> None:
    await connection.fetch(_SQL["leave"], worker_id)


async def survey(connection: Connection, *, lease_s: float, thorough: bool = True, now: datetime | None = None) -> Survey:
    """Only a `thorough` survey scans all running runs; the others use the last counts that the workers reported."""
    (row,) = await connection.fetch(_SQL["survey"], now, lease_s, thorough)
    beats = dict(zip(row["worker_ids"], row["beats"], strict=True))
    leases_s = {id_: own_s for id_, own_s in zip(row["worker_ids"], row["leases_s"], strict=True) if own_s is not None}
    return Survey(beats, row["running"], row["abandoned"], row["overrunning"], row["expired"], row["to_plan"], leases_s)


async def declare_lost(connection: Connection, silent: Mapping[UUID, int], *, now: datetime | None = None) -> list[UUID]:
    """Declares those workers lost that have sent no heartbeat since the given one."""
    documents = [{"id": worker_id, "beat": beat} for worker_id, beat in sorted(silent.items())]
    rows = await connection.fetch(_SQL["declare_lost"], now, msgspec.json.encode(documents).decode())
    return [row["id"] for row in rows]


async def workers(connection: Connection) -> list[Worker]:
    return [Worker(*row) for row in await connection.fetch(_SQL["workers"])]


async def forget_workers(connection: Connection, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["forget_workers"], now)


async def node_beat(
    connection: Connection,
    node_id: UUID,
    *,
    name: str,
    partitions: Sequence[int],
    alive_s: float,
    session: int | None = None,
    now: datetime | None = None,
) -> list[UUID]:
    """`session` is the server process that holds this node's locks: if it has ended, the node is dead."""
    rows = await connection.fetch(_SQL["node_beat"], now, node_id, name, partitions, alive_s, session)
    return [row["id"] for row in rows]


async def node_leave(connection: Connection, node_id: UUID) -> None:
    await connection.fetch(_SQL["node_leave"], node_id)


async def nodes(connection: Connection) -> list[Node]:
    return [Node(*row) for row in await connection.fetch(_SQL["nodes"])]


async def forget_nodes(connection: Connection, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["forget_nodes"], now)
