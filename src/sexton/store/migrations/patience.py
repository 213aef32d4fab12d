"""Work that needs locks on tables in use: never for long, and tried again if it did not get them.

A waiting lock request of a migration also blocks every later session. So no transaction waits or holds for longer than
`Pace.hold_s`: it is rolled back, the others get their turn, and it tries again after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from sexton.clock import SystemClock
from sexton.domain.backoff import doubled_s
from sexton.errors import Contention, SextonError
from sexton.store.database import Postgres, Session

from .migration_lock import MigrationLock, Pace
from .reports import Blocker, Retrying, Tell

T = TypeVar("T")


class HeldTooLong(Exception):
    """A transaction that was rolled back because its time was over."""


class Patience:
    """One per migration."""

    def __init__(self, database: Postgres, lock: MigrationLock, *, tell: Tell, pace: Pace) -> None:
        self.database = database
        self.lock = lock
        self.tell = tell
        self.pace = pace
        self._clock = SystemClock()
        self._blocker: Blocker | None = None

    async def insist(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Tries until it gets its locks, or until `patience_s` is over: then one line names the session in the way."""
        until = self._clock.monotonic() + self.pace.patience_s
        tries = 0
        self._blocker = None
        while True:
            tries += 1
            try:
                await self.lock.check()
                return await work()
            except (Contention, HeldTooLong) as error:
                reason = str(error)
            pause_s = doubled_s(self.pace.first_pause_s, self.pace.longest_pause_s, tries - 1)
            if self._clock.monotonic() + pause_s > until:
                raise Contention(self._surrender(what, tries, reason))
            self.tell(Retrying(what, tries, pause_s, reason, self._blocker))
            await asyncio.sleep(pause_s)

    def _surrender(self, what: str, tries: int, reason: str) -> str:
        by = f"; {self._blocker.line} is in the way: end it or wait for it" if self._blocker else ""
        return (
            f"{what}: gave up after {tries} tries ({reason}){by}; finished steps stay applied; then run again: sexton migrate"
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """A transaction that lasts at most `Pace.hold_s`, waits for locks included."""
        limit_ms = round(self.pace.hold_s * 1000)
        async with self.database.transaction() as session:
            await session.execute(f"SET LOCAL lock_timeout = {limit_ms}; SET LOCAL statement_timeout = 0")
            ((pid,),) = await session.fetch("SELECT pg_backend_pid()")
            async with self.watch(pid):
                try:
                    async with asyncio.timeout(self.pace.hold_s):
                        yield session
                except TimeoutError:
                    raise HeldTooLong(f"not done within {self.pace.hold_s:g} s, and rolled back") from None

    @asynccontextmanager
    async def watch(self, pid: int) -> AsyncIterator[None]:
        """Finds meanwhile which session the server process `pid` waits for: afterwards it cannot be found."""
        is_over = asyncio.Event()
        task = asyncio.create_task(self._look(pid, is_over))
        try:
            yield
        finally:
            is_over.set()
            with suppress(SextonError):
                await task

    async def _look(self, pid: int, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), min(0.25, self.pace.hold_s / 8))
            if not is_over.is_set():
                self._blocker = await self.lock.blocker_of(pid) or self._blocker
