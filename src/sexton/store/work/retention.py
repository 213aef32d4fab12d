"""Retention: creates partitions ahead, drops whole old ones, and deletes expired keys."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sexton.store.database import Connection, Database
from sexton.store.sql import statements

_SQL = statements(__name__)
KEY_BATCH = 5000


class UniqueKey(NamedTuple):
    tenant: str
    key: bytes


FIRST = UniqueKey("", b"")


class Expired(NamedTuple):
    has_more: bool  # idempotency keys
    looked: UniqueKey  # where the next pass over unique keys begins; after the last key, the first one again


async def make_partitions(connection: Connection, *, now: datetime | None = None) -> int:
    """Fifteen days ahead; returns how many were missing."""
    (row,) = await connection.fetch(_SQL["make_partitions"], now)
    return int(row["made"])


async def drop_partitions(database: Database, parent: str, *, keep_s: float, now: datetime | None = None) -> list[str]:
    """Drops the partitions of `parent` that ended longer than `keep_s` ago. A partition of `jobs` or `endings` that a live run
    or a dead letter still needs stays, and so do all later ones."""
    async with database.connection() as connection:
        past = await connection.fetch(_SQL["past_partitions"], now, keep_s, parent)
    dropped = []
    for row in past:
        async with database.transaction() as connection:
            if parent != "executions":
                (needed,) = await connection.fetch(_SQL["needed_before"], row["high"])
                if needed["needed"]:
                    break
            await connection.fetch(_SQL["drop_partition"], parent, row["child"])
            dropped.append(str(row["child"]))
    return dropped


async def expire_keys(connection: Connection, *, after: UniqueKey = FIRST, now: datetime | None = None) -> Expired:
    """One batch: expired idempotency keys, and the unique keys after the given one that no job needs any more."""
    rows = await connection.fetch(_SQL["expire_keys"], now, KEY_BATCH)
    last = await connection.fetch(_SQL["expire_unique_keys"], now, *after, KEY_BATCH)
    looked = UniqueKey(*last[0]) if last else FIRST
    return Expired(len(rows) == KEY_BATCH, looked)
