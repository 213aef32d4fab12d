"""Workers and scheduler nodes: which are alive, and which have stopped sending heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.store.database import ClientEnd, Connection
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
    suspects_wait: bool = False  # for a worker in quarantine with its queues and tasks
    is_announced: bool = False  # its session: if that ends, sweepers see it


class AnnouncedSession(NamedTuple):
    """The session over which a worker sends its heartbeats, as a sweeper sees it."""

    name: str  # of the server process and its start, because process ids are used again
    has_ended: bool
    parent_id: UUID | None = None  # of the worker


class Survey(NamedTuple):
    """An overview for a scheduler: the heartbeat of every live worker, and whether there is work for the scheduler."""

    beats: dict[UUID, int]
    running: bool  # any run: a worker without heartbeats may hold it
    abandoned: bool
    overrunning: bool
    expired: bool
    to_plan: bool  # schedules that are due for planning, or fires to be taken back
    leases_s: Mapping[UUID, float]  # of remote workers; all others use the cluster's lease
    sessions: Mapping[UUID, AnnouncedSession] = {}  # of the workers that have announced one
    own_session: str | None = None  # of this look; null: not direct
    own_stayed: bool = False  # the one of the look before is still there


class QuarantineTurn(NamedTuple):
    """Of a worker that has heard of suspects."""

    wanted_count: int  # children that the waiting suspects could use, besides those that hold nothing; may be negative
    ahead_count: int  # live workers that are to start one before it


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
    is_alive: bool  # not declared dead, and its last heartbeat is younger than its lease
    process_slots: int  # of its concurrency, for tasks in child processes
    process_running_count: int  # of its running_count
    lacks: list[str]  # settings and secrets that jobs needed and it does not have
    quarantine: bool = False  # it executes only suspects
    batch_slots: int = 0  # of its concurrency, for runs of batch tasks
    batch_running_count: int = 0  # of its running_count


class Node(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    started_at: datetime
    beat_at: datetime
    partitions: list[int]
    is_alive: bool


async def enlist(
    connection: Connection,
    worker_id: UUID,
    *,
    name: str,
    queues: Sequence[str],
    tasks: Sequence[str],
    concurrency: int,
    quarantine: bool = False,
    parent_id: UUID | None = None,
    lease_s: float | None = None,
    process_tasks: Sequence[str] = (),
    process_slots: int = 0,
    batch_tasks: Sequence[str] = (),
    batch_slots: int = 0,
    now: datetime | None = None,
) -> None:
    """In `quarantine`, a worker executes only suspects (`runs.claim_suspects`). `parent_id` is the worker that started it and
    whose end is its end: a loss together with the parent proves nothing against the run. `concurrency` includes the
    `process_slots`, which only the `process_tasks` use, and the `batch_slots` of the `batch_tasks`."""
    capacity = (queues, tasks, concurrency, lease_s, process_tasks, process_slots)
    await connection.fetch(_SQL["enlist"], now, worker_id, name, *capacity, quarantine, parent_id, batch_tasks, batch_slots)


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
    process_running_count: int = 0,
    batch_running_count: int = 0,
    lacks: Sequence[str] = (),
    queues: Sequence[str] = (),
    overdue_s: float | None = None,
    only: Sequence[UUID] | None = None,
    announced: ClientEnd | None = None,
    now: datetime | None = None,
) -> Beaten | None:
    """The leases of this worker in the database, of all runs or `only` of these, and whether there is work, unless `overdue_s`
    is null; `None` if the worker was declared dead. `announced`: sweepers may take the end of this connection's session for the
    worker's end, if the server sees the same address and port."""
    given = (now, worker_id, running_count, draining, refused_count, queues, overdue_s, only)
    _, address, port = announced or ClientEnd(0)
    session = (announced is not None, address, port)
    rows = await connection.fetch(_SQL["beat"], *given, process_running_count, lacks, *session, batch_running_count)
    if not rows:
        return None
    held = [Held(*row[:5]) for row in rows if row["id"] is not None]
    first = rows[0]
    return Beaten(held, first["is_ready"], first["is_overdue"], first["suspects_wait"], first["is_announced"])


async def is_elsewhere(connection: Connection, run_id: UUID, lacks: str, *, now: datetime | None = None) -> bool:
    """Whether another live worker could run it, and has not said that it lacks the same."""
    (row,) = await connection.fetch(_SQL["is_elsewhere"], now, run_id, lacks)
    found: bool = row["is_elsewhere"]
    return found


async def leased(connection: Connection, worker_id: UUID) -> list[Held]:
    """All leases of this worker in the database."""
    return [Held(*row) for row in await connection.fetch(_SQL["leased"], worker_id)]


async def leave(connection: Connection, worker_id: UUID) -> None:
    await connection.fetch(_SQL["leave"], worker_id)


async def survey(
    connection: Connection,
    *,
    lease_s: float,
    thorough: bool = True,
    end: ClientEnd | None = None,
    last_session: str | None = None,
    now: datetime | None = None,
) -> Survey:
    """Only a `thorough` survey scans all running runs; the others use the last counts that the workers reported. Only over a
    direct connection, with its `end`, it looks at sessions; `last_session` is the caller's own at its last look."""
    _, address, port = end or ClientEnd(0)
    given = (now, lease_s, thorough, end is not None, address, port, last_session)
    (row,) = await connection.fetch(_SQL["survey"], *given)
    beats = dict(zip(row["worker_ids"], row["beats"], strict=True))
    leases_s = {id_: own_s for id_, own_s in zip(row["worker_ids"], row["leases_s"], strict=True) if own_s is not None}
    announced = zip(row["announced_ids"], row["sessions"], row["have_ended"], row["parent_ids"], strict=True)
    sessions = {worker_id: AnnouncedSession(*session) for worker_id, *session in announced}
    found = (row["running"], row["abandoned"], row["overrunning"], row["expired"], row["to_plan"])
    return Survey(beats, *found, leases_s, sessions, row["own_session"], row["own_stayed"])


async def declare_lost(
    connection: Connection,
    silent: Mapping[UUID, int],
    *,
    lease_left_s: float | None = None,
    now: datetime | None = None,
) -> list[UUID]:
    """Declares those workers lost that have sent no heartbeat since the given one. With `lease_left_s`, it is their sessions
    that have ended: they keep their at-most-once runs and those with an own lease for this much longer."""
    documents = [{"id": worker_id, "beat": beat, "lease_left_s": lease_left_s} for worker_id, beat in sorted(silent.items())]
    rows = await connection.fetch(_SQL["declare_lost"], now, msgspec.json.encode(documents).decode())
    return [row["id"] for row in rows]


async def count_held(connection: Connection, worker_id: UUID) -> None:
    """Notes how many runs the worker holds, before it gives them back without a heartbeat. If it is lost then, those that could
    not be given back were not alone. Its next heartbeat ends this."""
    await connection.fetch(_SQL["count_held"], worker_id)


async def declare_ended(
    connection: Connection, worker_id: UUID, *, reason: str, with_parent: bool = False, now: datetime | None = None
) -> bool:
    """Declares a worker lost whose process has ended: its parent saw it. `reason` says how, as in "its process was killed by
    signal 11". `with_parent`: another process may be the cause, so the loss counts as one together with the parent. False if it
    has left or was declared lost before."""
    return bool(await connection.fetch(_SQL["declare_ended"], now, worker_id, reason, with_parent))


async def quarantine_turn(
    connection: Connection, worker_id: UUID, *, queues: Sequence[str], tasks: Sequence[str], now: datetime | None = None
) -> QuarantineTurn:
    """Whether this worker is to start a child in quarantine. The order needs no row that a crash would leave behind."""
    (row,) = await connection.fetch(_SQL["quarantine_turn"], now, worker_id, queues, tasks)
    return QuarantineTurn(row["wanted_count"], row["ahead_count"])


async def is_lost(connection: Connection, worker_id: UUID) -> bool:
    (row,) = await connection.fetch(_SQL["is_lost"], worker_id)
    return bool(row["is_lost"])


async def workers(connection: Connection, *, now: datetime | None = None) -> list[Worker]:
    return [Worker(*row) for row in await connection.fetch(_SQL["workers"], now)]


async def forget_workers(connection: Connection, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["forget_workers"], now)


async def node_beat(
    connection: Connection,
    node_id: UUID,
    *,
    name: str,
    partitions: Sequence[int],
    session: int | None = None,
    now: datetime | None = None,
) -> list[UUID]:
    """`session` is the server process that holds this node's locks: if it has ended, the node is dead."""
    rows = await connection.fetch(_SQL["node_beat"], now, node_id, name, partitions, session)
    return [row["id"] for row in rows]


async def node_leave(connection: Connection, node_id: UUID) -> None:
    await connection.fetch(_SQL["node_leave"], node_id)


async def nodes(connection: Connection, *, now: datetime | None = None) -> list[Node]:
    return [Node(*row) for row in await connection.fetch(_SQL["nodes"], now)]


async def forget_nodes(connection: Connection, *, now: datetime | None = None) -> None:
    await connection.fetch(_SQL["forget_nodes"], now)
