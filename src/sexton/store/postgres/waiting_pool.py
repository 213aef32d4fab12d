"""Connections for callers that have to wait for another transaction (rule "a waiting caller leaves the group"). They are few,
and apart from the pool that all callers share, so that callers that wait never delay the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sexton.errors import Contention
from sexton.store.database import Database, Postgres

WAITING_POOL_SIZE = 4
PATIENCE_S = 2.0  # for a free connection; the statements on it have timeouts of their own


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
