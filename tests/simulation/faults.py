"""A database that fails when the simulation says so: at every statement boundary, and only there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

import asyncpg

from sexton.errors import Contention, DatabaseUnavailable
from sexton.store.database import ClientEnd, Connection, Postgres
from sexton.store.postgres.driver_errors import translate


class Fault(StrEnum):
    NONE = "none"
    REFUSED = "connection dropped before the statement"
    REPLY_LOST = "reply lost after the statement"
    CRASH_BEFORE = "crash before the statement"
    CRASH_AFTER = "crash after the statement"
    DEADLOCK = "deadlock detected"
    SERIALIZATION = "serialization failure"


# A lost reply is drawn twice as often, because the service does not know that the statement was executed.
FLAWS_OF_THE_LINE = (Fault.REFUSED, Fault.REPLY_LOST, Fault.REPLY_LOST, Fault.DEADLOCK, Fault.SERIALIZATION)
ALL_FAULTS = (
    Fault.REFUSED,
    Fault.REPLY_LOST,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.DEADLOCK,
    Fault.SERIALIZATION,
)
_IN_THE_WAY = {Fault.DEADLOCK: asyncpg.DeadlockDetectedError, Fault.SERIALIZATION: asyncpg.SerializationError}

Draw = Callable[[bool], Fault]


class Crash(BaseException):
    """The process has ended, and lost all its memory."""


class FaultyDatabase:
    """Sits between a service and PostgreSQL. `draw` decides the fate of the next statement (true: inside a transaction),
    `answered` is called with the query whose reply arrived. At `breathe` the process may pause between two statements while
    others continue; not inside a transaction, whose locks would stop the others as well."""

    def __init__(
        self,
        real: Postgres,
        draw: Draw,
        answered: Callable[[str], None],
        breathe: Callable[[str], Awaitable[None]],
        end: Callable[[], ClientEnd | None],
    ) -> None:
        """`end` is the client's end of the session that the statements go over."""
        self._real, self._draw, self._answered, self._breathe, self._end = real, draw, answered, breathe, end

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._real.connection() as connection:
            yield FaultyConnection(connection, self._draw, self._answered, self._breathe, self._end())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """BEGIN and COMMIT are statements too: the reply to a COMMIT may be lost like any other."""
        async with self._real.connection() as connection:
            faulty = FaultyConnection(connection, self._draw, self._answered)
            try:
                await faulty.execute("BEGIN")
                yield faulty
                if faulty.failed:  # PostgreSQL answers a COMMIT with ROLLBACK then
                    raise Contention("a statement of this transaction failed, so the whole transaction was rolled back")
                await faulty.execute("COMMIT")
            finally:
                # a transaction that has not committed never will: the server rolls back when a connection breaks
                if faulty.begun:
                    await connection.execute("ROLLBACK")


class FaultyConnection:
    def __init__(
        self,
        real: Connection,
        draw: Draw,
        answered: Callable[[str], None],
        breathe: Callable[[str], Awaitable[None]] | None = None,
        client_end: ClientEnd | None = None,
    ) -> None:
        self.client_end = client_end
        self._real, self._draw, self._answered, self._breathe = real, draw, answered, breathe
        self.begun = False
        self.failed = False  # a statement of the transaction failed, so PostgreSQL accepts no more of it

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        if self._breathe is not None:
            await self._breathe(query)
        fault = self._before()
        rows = await self._real.fetch(query, *args)
        self._after(fault)
        self._answered(query)
        return rows

    async def execute(self, query: str) -> Any:
        fault = self._before()
        answer = await self._real.execute(query)
        self.begun = query == "BEGIN" or (self.begun and query not in ("COMMIT", "ROLLBACK"))
        self._after(fault)
        return answer

    def _before(self) -> Fault:
        if self.failed:
            raise asyncpg.InFailedSQLTransactionError("current transaction is aborted")
        fault = self._draw(self.begun)
        if fault is Fault.REFUSED:
            raise DatabaseUnavailable(fault)
        if fault is Fault.CRASH_BEFORE:
            raise Crash(fault)
        if fault in _IN_THE_WAY:
            self.failed = self.begun
            error = translate(_IN_THE_WAY[fault](fault))
            assert error is not None, "a blocked caller gets an error of Sexton"
            raise error
        return fault

    def _after(self, fault: Fault) -> None:
        if fault is Fault.REPLY_LOST:
            raise DatabaseUnavailable(fault)
        if fault is Fault.CRASH_AFTER:
            raise Crash(fault)
