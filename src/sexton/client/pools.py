"""One pool per event loop, opened on first use: a connection belongs to the loop that opened it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from sexton.store.database import Postgres
from sexton.store.postgres.waiting_pool import WaitingPool


class _Slot:
    def __init__(self) -> None:
        self.opening = asyncio.Lock()
        self.database: Postgres | None = None
        self.waiting_pool: WaitingPool | None = None


class Pools:
    def __init__(self, open_one: Callable[[], Awaitable[Postgres]]) -> None:
        self._open_one = open_one
        self._lock = threading.Lock()
        self._slots: dict[asyncio.AbstractEventLoop, _Slot] = {}

    async def here(self) -> Postgres:
        """The pool of the running loop."""
        slot = self._slot(asyncio.get_running_loop())
        if slot.database is None:
            async with slot.opening:
                if slot.database is None:
                    slot.database = await self._open_one()
        return slot.database

    async def waiting_pool_here(self) -> WaitingPool:
        """For calls of the running loop that have to wait for another transaction."""
        database, slot = await self.here(), self._slot(asyncio.get_running_loop())
        slot.waiting_pool = slot.waiting_pool or WaitingPool(database)
        return slot.waiting_pool

    async def close_here(self) -> None:
        with self._lock:
            slot = self._slots.pop(asyncio.get_running_loop(), None)
        if slot is not None:
            async with slot.opening:
                if slot.waiting_pool is not None:
                    await slot.waiting_pool.close()
                if slot.database is not None:
                    await slot.database.close()

    def _slot(self, loop: asyncio.AbstractEventLoop) -> _Slot:
        with self._lock:
            for ended in [other for other in self._slots if other.is_closed()]:
                del self._slots[ended]  # its connections were closed with it
            return self._slots.setdefault(loop, _Slot())
