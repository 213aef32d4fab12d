"""An overview of the cluster. Every count stops at `COUNT_LIMIT`, so a long queue costs no more than a short one."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from sexton.store.database import Connection, Row
from sexton.store.sql import statements
from sexton.store.uuid7 import floor

COUNT_LIMIT = 10_000
QUEUE_LIMIT = 200
TENANT_LIMIT = 1_000  # in one query, over all queues and lanes

_SQL = statements(__name__)
_COUNTS = ("ready_count", "running_count", "waiting_count", "parked_count")
_FLEET = ("worker_count", "silent_worker_count", "node_count", "slot_count", "process_slot_count", "batch_slot_count")


class Stats(msgspec.Struct, frozen=True):
    """The fields of `wire.Stats`."""

    at: datetime
    ready_count: int
    running_count: int
    waiting_count: int
    parked_count: int
    quarantined_count: int
    paused_count: int
    capped: bool
    oldest_ready_s: float | None
    next_due_at: datetime | None
    dead_letter_count: int
    worker_count: int  # live ones
    silent_worker_count: int  # no heartbeat for longer than their lease, and not declared dead yet
    node_count: int
    slot_count: int  # of live workers, for tasks in their own process
    process_slot_count: int  # for tasks in child processes
    batch_slot_count: int  # for runs of batch tasks
    ended_last_minute: dict[str, int]  # executions by status, of the newest 10,000 at most


class TenantLoad(msgspec.Struct, frozen=True):
    """The fields of `wire.TenantView`."""

    name: str
    ready_count: int
    running_count: int
    waiting_count: int
    parked_count: int
    capped: bool


class QueueLoad(TenantLoad, frozen=True):
    """The fields of `wire.QueueView`."""

    oldest_ready_s: float | None
    worker_count: int


async def stats(connection: Connection, *, now: datetime | None = None) -> Stats:
    (row,) = await connection.fetch(_SQL["stats"], now, COUNT_LIMIT, TENANT_LIMIT)
    counts = {name: row[name] for name in (*_COUNTS, "quarantined_count", "paused_count", "dead_letter_count")}
    since = floor(row["now"] - timedelta(minutes=1))
    ended = {one["status"]: one["count"] for one in await connection.fetch(_SQL["ended"], since, COUNT_LIMIT + 1)}
    return Stats(
        at=row["now"],
        **{name: min(count, COUNT_LIMIT) for name, count in counts.items()},
        capped=max(*counts.values(), sum(ended.values())) > COUNT_LIMIT,
        **{name: row[name] for name in ("oldest_ready_s", "next_due_at", *_FLEET)},
        ended_last_minute=ended,
    )


async def queues(connection: Connection, *, now: datetime | None = None) -> list[QueueLoad]:
    """By name: every queue with ready (the first 200 of them), running or parked runs, that a live worker serves, or that is
    among the 10,000 runs due next. `capped`: a count is a lower bound. The oldest run is searched in a limited number of
    tenants."""
    rows = await connection.fetch(_SQL["queues"], now, COUNT_LIMIT, QUEUE_LIMIT, TENANT_LIMIT)
    return [QueueLoad(*(row["name"], *_counts(row), row["capped"], row["oldest_ready_s"], row["worker_count"])) for row in rows]


async def tenants(connection: Connection) -> list[TenantLoad]:
    """By name: tenants with runs among 10,000 ready ones (the same number of each tenant, of 1,000 tenants at most), 10,000
    running ones, 10,000 parked ones and the 10,000 due next. `capped`: there are more runs than these."""
    rows = await connection.fetch(_SQL["tenants"], COUNT_LIMIT, TENANT_LIMIT)
    return [TenantLoad(*(row["name"], *_counts(row), row["capped"])) for row in rows]


async def tenant(connection: Connection, name: str) -> TenantLoad:
    """One tenant: all its ready runs, and those among 10,000 running, parked and waiting runs of all tenants."""
    (row,) = await connection.fetch(_SQL["tenant"], COUNT_LIMIT, name)
    return TenantLoad(*(name, *_counts(row), row["capped"]))


async def known_tasks(connection: Connection, *, now: datetime | None = None) -> set[str]:
    """The tasks that the live workers know."""
    return {row["task"] for row in await connection.fetch(_SQL["known_tasks"], now)}


def _counts(row: Row) -> list[int]:
    return [min(row[name], COUNT_LIMIT) for name in _COUNTS]
