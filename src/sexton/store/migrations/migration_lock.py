"""The migration lock: one migrator at a time, on a direct connection and through a transaction pooler.

It is a transaction-level advisory lock in a transaction of its own, open as long as the migration lasts. If the process
dies, its connection closes and the lock is free at once; nothing has to expire. An open transaction without a snapshot does not
hold back VACUUM or CREATE INDEX CONCURRENTLY. Waiters poll: a waiting statement would occupy a connection of the pooler that
the migrator needs.

The lock keeps migrators from doing the same work; correctness does not depend on it. Every step and every batch also locks or
inserts its row of the ledger in its own transaction, so a migrator that lost the lock unnoticed cannot apply anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from sexton.clock import SystemClock
from sexton.errors import Contention, DatabaseUnavailable
from sexton.store.database import Postgres, connect
from sexton.store.postgres.driver_errors import translated_errors

from .advisory_locks import TRY
from .reports import Blocker, Tell, Waiting

_KEEP_OPEN = """\
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout', 'lock_timeout')"""
# Inside a transaction pg_stat_activity keeps its first result until the snapshot is cleared.
_LOOK_AGAIN = "SELECT pg_stat_clear_snapshot()"
_BLOCKERS = """\
SELECT a.pid, coalesce(a.application_name, ''), coalesce(a.state, 'unknown'),
  extract(epoch FROM clock_timestamp() - CASE WHEN a.state = 'active' THEN a.query_start ELSE a.xact_start END)::float8
FROM unnest(pg_blocking_pids($1)) AS b(pid) JOIN pg_stat_activity a ON a.pid = b.pid
ORDER BY a.xact_start LIMIT 1"""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long a migration waits and holds locks, and how it retries."""

    hold_s: float = 2.0  # no transaction of a step waits for or holds a lock of a table in use for longer
    patience_s: float = 300.0  # for one step, all tries together
    first_pause_s: float = 0.5  # doubled after every try
    longest_pause_s: float = 10.0
    turn_s: float = 3600.0  # for another migrator
    batch_rest_s: float = 0.02  # between two batches of a backfill: other sessions get their locks and their disk


class MigrationLock:
    """Held by the one process that may migrate now."""

    def __init__(self, raw: Any, watcher: Any) -> None:
        self._raw = raw
        self._watcher = watcher
        self._one_at_a_time = asyncio.Lock()

    async def check(self) -> None:
        """Before each piece of work. A connection that broke has lost the lock."""
        async with self._one_at_a_time:
            with translated_errors():
                await self._raw.execute("SELECT 1")  # the simple protocol: no portal stays open with its snapshot

    async def blocker_of(self, pid: int) -> Blocker | None:
        """The session that the server process `pid` waits for. Not to be cancelled: behind a pooler that releases the lock."""
        async with self._one_at_a_time:
            with translated_errors():
                await self._watcher.execute(_LOOK_AGAIN)
                rows = await self._watcher.fetch(_BLOCKERS, pid)
        return Blocker(rows[0][0], rows[0][1], rows[0][2], rows[0][3] or 0.0) if rows else None


@asynccontextmanager
async def migration_lock(database: Postgres, *, tell: Tell, pace: Pace) -> AsyncIterator[MigrationLock]:
    raw = await connect(database.url)
    watcher = raw
    try:
        await _wait(raw, tell, pace)
        # A query inside the open transaction takes a snapshot, which CREATE INDEX CONCURRENTLY would wait for. Behind a pooler
        # no index is built, and connections are few.
        watcher = await connect(database.url) if database.direct else raw
        yield MigrationLock(raw, watcher)
    finally:
        for connection in {raw, watcher}:
            with suppress(DatabaseUnavailable), translated_errors():
                await connection.close(timeout=5)


async def _wait(raw: Any, tell: Tell, pace: Pace) -> None:
    clock = SystemClock()
    until, pause_s, is_told = clock.monotonic() + pace.turn_s, 0.05, False
    while True:
        with translated_errors():
            await raw.execute("BEGIN")
            if await raw.fetchval(TRY):
                await raw.execute(_KEEP_OPEN)
                return
            await raw.execute("ROLLBACK")
        if clock.monotonic() > until:
            raise Contention(
                f"another process has been migrating this database for {pace.turn_s:.0f} s; wait for it, or end it"
            )
        if not is_told:
            tell(Waiting())
            is_told = True
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1.0)
