"""Measures how long a migration blocked other sessions: reads PostgreSQL's locks every few milliseconds, on a connection of its
own."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

import asyncpg

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SAMPLE_S = 0.01
# Locks that block a service that reads or writes rows. Only relations that existed before: no session waits for a new one.
_HELD = """
SELECT l.pid, l.relation::regclass::text AS relation, l.mode FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE a.usename = $1 AND l.locktype = 'relation' AND l.granted AND l.relation = ANY ($2)
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
_WAITED = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float8 FROM pg_locks l
WHERE NOT l.granted AND EXISTS (
  SELECT FROM unnest(pg_blocking_pids(l.pid)) AS blocking JOIN pg_stat_activity a ON a.pid = blocking WHERE a.usename = $1)
"""
_RELATIONS = "SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('sexton')"


@dataclass
class Seen:
    """Locks that the migrating role held."""

    samples: int = 0
    blind_s: float = 0.0  # the longest time between two samples: a shorter lock may have been missed
    held_s: float = 0.0  # the longest time that a lock blocked readers or writers of a relation
    held_on: str = ""  # the relation of that lock
    waited_s: float = 0.0  # the longest time that any session waited for the migration


@asynccontextmanager
async def migrating_role(connection: Conn, url: str) -> AsyncIterator[tuple[str, str]]:
    """Creates a role for the migration, so that its session can be told from all others: the role's name, and the URL to
    migrate with."""
    role = f"migrating_{secrets.token_hex(4)}"
    await connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
    parts = urlsplit(url)
    try:
        yield role, parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        await connection.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}; DROP ROLE {role}")


@asynccontextmanager
async def watched(url: str, role: str) -> AsyncIterator[Seen]:
    """While open, samples the locks that this role holds and the sessions that wait for them."""
    seen, connection = Seen(), await asyncpg.connect(url)
    relations = [row["oid"] for row in await connection.fetch(_RELATIONS)]
    watching = asyncio.create_task(_watch(connection, role, relations, seen))
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        connection.terminate()


async def _watch(connection: Conn, role: str, relations: list[int], seen: Seen) -> None:
    since: dict[tuple[int, str, str], float] = {}
    last = time.monotonic()
    while True:
        before = time.monotonic()
        seen.blind_s, last = max(seen.blind_s, before - last), before
        held = {tuple(row) for row in await connection.fetch(_HELD, role, relations)}
        since = {lock: since.get(lock, before) for lock in held}
        now = time.monotonic()
        for lock, first in since.items():
            if now - first > seen.held_s:
                seen.held_s, seen.held_on = now - first, lock[1]
        seen.waited_s = max(seen.waited_s, await connection.fetchval(_WAITED, role))
        seen.samples += 1
        await asyncio.sleep(SAMPLE_S)
