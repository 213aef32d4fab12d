"""Connections for callers that have to wait for another transaction (rule "a waiting caller leaves the group"). They are few,
and apart from the pool that all callers share, so that callers that wait never delay the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sexton.errors import Contention
from sexton.store.database import Connection, Database, Postgres, Row

WAITING_POOL_SIZE = 4
PATIENCE_S = 2.0  # for a free connection; the statements on it have timeouts of their own
_WAIT_S_MIN = 0.1  # for a lock, of a caller whose time is up: it may have waited for another lock until now
_AGAIN_S = 0.05  # the time for locks is set again when this much has passed


class WaitingPool:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._free = asyncio.Semaphore(WAITING_POOL_SIZE)
        self._opening = asyncio.Lock()
        self._pool: Postgres | None = None

    @asynccontextmanager
    async def taken(self, *, within_s: float | None = None) -> AsyncIterator[Database]:
        """A database for one caller, whose statements wait for locks as long as usual. `within_s`: for a caller that has
        already waited."""
        try:
            async with asyncio.timeout(PATIENCE_S if within_s is None else within_s):
                await self._free.acquire()
        except TimeoutError:
            raise Contention(
                f"another transaction holds what this call needs, and {WAITING_POOL_SIZE} other calls wait for locks as well"
            ) from None
        try:
            yield await self._opened()
        finally:
            self._free.release()

    @asynccontextmanager
    async def taken_until(self, left_s: Callable[[], float]) -> AsyncIterator[Database]:
        """For a caller with one deadline: the wait for a connection and all waits for locks end with it."""
        async with self.taken(within_s=left_s()) as database:
            yield _Bounded(database, left_s)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _opened(self) -> Database:
        if not isinstance(self._database, Postgres):  # a test that watches the statements
            return self._database
        async with self._opening:
            if self._pool is None:
                self._pool = await self._database.beside(size=WAITING_POOL_SIZE)
        return self._pool


class _Bounded:
    """A database whose statements wait for locks until the time of their caller is up."""

    def __init__(self, database: Database, left_s: Callable[[], float]) -> None:
        self._database, self._left_s = database, left_s

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self._database.transaction() as connection:
            yield _BoundedConnection(connection, self._left_s)

    connection = transaction  # the settings last as long as a transaction


class _BoundedConnection:
    def __init__(self, connection: Connection, left_s: Callable[[], float]) -> None:
        self._connection, self._left_s = connection, left_s
        self._set_s: float | None = None

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        await self._bound()
        return await self._connection.fetch(query, *args)

    async def execute(self, query: str) -> Any:
        await self._bound()
        return await self._connection.execute(query)

    async def _bound(self) -> None:
        left_s = max(self._left_s(), _WAIT_S_MIN)
        if self._set_s is None or self._set_s - left_s >= _AGAIN_S:
            self._set_s, wait = left_s, f"'{left_s * 1000:.0f}ms'"
            await self._connection.execute(f"SET LOCAL lock_timeout = {wait}; SET LOCAL sexton.submit_wait = {wait}")
