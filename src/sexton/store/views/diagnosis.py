"""The facts that `sexton doctor` checks, read from PostgreSQL's own views and our tables. It changes nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from sexton.errors import DatabaseUnavailable, SchemaMismatch
from sexton.store import clock as database_clock
from sexton.store.database import Connection, Postgres, connect
from sexton.store.migrations import require_current
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.sql import statements

from . import locked_rows
from .locked_rows import HeldKey, Holder, LockedRow

LOCKED_S = 10.0  # a row that a transaction holds for longer is passed over by the services
AHEAD = timedelta(days=3650)  # rows that are due later are looked at as well
LONG_S = 60.0  # a transaction open for longer keeps VACUUM from removing dead rows
HEAR_S = 3.0

_SQL = statements(__name__)
_SETTINGS = (
    "autovacuum",
    "autovacuum_naptime",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "fsync",
    "full_page_writes",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "max_connections",
    "reserved_connections",
    "superuser_reserved_connections",
    "synchronous_commit",
    "synchronous_standby_names",
    "track_counts",
    "transaction_timeout",
)


class Transaction(msgspec.Struct, frozen=True):
    pid: int
    application: str
    state: str | None
    age_s: float


class Prepared(msgspec.Struct, frozen=True):
    gid: str
    age_s: float


class Slot(msgspec.Struct, frozen=True):
    name: str
    active: bool
    xmin_age: int  # transactions since the oldest one whose rows it still needs


class Table(msgspec.Struct, frozen=True):
    name: str
    live_count: int
    dead_count: int
    is_never_vacuumed: bool


class LastHeartbeat(msgspec.Struct, frozen=True):
    """Of a scheduler or a worker: since its last heartbeat, and whether that makes it dead."""

    queues: list[str]
    silent_s: float
    is_alive: bool


class ServerFacts(msgspec.Struct, frozen=True):
    """Of any PostgreSQL, with or without our schema."""

    now: datetime
    is_replica: bool
    version: int  # as the server reports it: 180001
    connection_count: int
    sync_standby_count: int
    settings: Mapping[str, str]
    transactions: Sequence[Transaction]
    prepared: Sequence[Prepared]
    slots: Sequence[Slot]


class SchemaFacts(msgspec.Struct, frozen=True):
    """Of our schema and of the processes that use it."""

    tables: Sequence[Table]
    days_ahead: Mapping[str, float]
    is_foreign: bool
    nodes: Sequence[LastHeartbeat]
    workers: Sequence[LastHeartbeat]  # except those that were declared dead
    ready_queues: Sequence[str]
    tzdata: str | None = None  # the newest release that plans schedules
    locked: Sequence[LockedRow] = ()
    keys: Sequence[HeldKey] = ()


async def server(connection: Connection, *, now: datetime | None = None) -> ServerFacts:
    (row,) = await connection.fetch(_SQL["server"], now)
    return ServerFacts(
        **row,
        settings={setting["name"]: setting["setting"] for setting in await connection.fetch(_SQL["settings"], _SETTINGS)},
        transactions=[Transaction(*found) for found in await connection.fetch(_SQL["transactions"], now, LONG_S)],
        prepared=[Prepared(*found) for found in await connection.fetch(_SQL["prepared_transactions"], now, LONG_S)],
        slots=[Slot(*found) for found in await connection.fetch(_SQL["slots"])],
    )


async def schema_fault(database: Postgres) -> str | None:
    """What is wrong with the schema, and what to run."""
    try:
        await require_current(database)
    except SchemaMismatch as error:
        return str(error)
    return None


async def schema(connection: Connection, *, now: datetime | None = None) -> SchemaFacts:
    home = await connection.fetch(_SQL["home"])
    beats = await connection.fetch(_SQL["last_heartbeats"], now)
    others = await locked_rows.look(connection, now=now)
    return SchemaFacts(
        tables=[Table(*found) for found in await connection.fetch(_SQL["tables"])],
        days_ahead={found["parent"]: found["days_ahead"] for found in await connection.fetch(_SQL["partitions"], now)},
        is_foreign=any(row["is_foreign"] for row in home),
        nodes=[LastHeartbeat(*beat[1:]) for beat in beats if beat["kind"] == "node"],
        workers=[LastHeartbeat(*beat[1:]) for beat in beats if beat["kind"] == "worker"],
        ready_queues=[row["queue"] for row in await connection.fetch(_SQL["ready_queues"])],
        tzdata=(await connection.fetch(_SQL["tzdata"]))[0]["version"],
        locked=await _locked(connection, others.holders, now),
        keys=others.keys,
    )


async def _locked(connection: Connection, found: Mapping[str, Holder], now: datetime | None) -> list[LockedRow]:
    lasting = {xid: one for xid, one in found.items() if one.age_s is not None and one.age_s >= LOCKED_S}
    if not lasting:
        return []
    return await locked_rows.due(connection, lasting, until=await database_clock.now(connection, now=now) + AHEAD)


async def hears(url: str) -> bool:
    """Whether a notification sent through this address comes back on it."""
    channel = f"sexton_doctor_{secrets.token_hex(8)}"
    heard = asyncio.Event()
    connection = await connect(url)
    try:
        with translated_errors(), suppress(DatabaseUnavailable, TimeoutError):
            await connection.add_listener(channel, lambda *_: heard.set())
            await connection.execute("SELECT pg_notify($1, '')", channel)
            await asyncio.wait_for(heard.wait(), HEAR_S)
    finally:
        connection.terminate()
    return heard.is_set()
