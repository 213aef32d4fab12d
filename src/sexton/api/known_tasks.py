"""The tasks that the live workers know, cached for a second: a job for another task is accepted with a warning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sexton.clock import Clock
from sexton.store.database import Database
from sexton.store.views import overview

KEPT_S = 1.0


class KnownTasks:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._names: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def unknown(self, tasks: Iterable[str]) -> set[str]:
        """Of these, the tasks that no live worker knows."""
        wanted = set(tasks)
        if not self._is_fresh():
            async with self._reading:
                if not self._is_fresh():
                    await self._read()
        return wanted - self._names

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._read_at < KEPT_S

    async def _read(self) -> None:
        async with self._database.connection() as connection:
            self._names = frozenset(await overview.known_tasks(connection, now=self._clock.database_now()))
        self._read_at = self._clock.monotonic()


def warning(task: str) -> str:
    return f"no live worker knows the task {task!r}; the job waits until one does"
