"""Session advisory locks, one per partition, on one direct connection that is used only for them."""

from __future__ import annotations

import asyncpg

from sexton.store.database import WRITABLE, connect
from sexton.store.postgres.driver_errors import translated_errors

_CLASS = 7308
_KEEPALIVE = {
    "application_name": "sexton leadership",
    "statement_timeout": "5s",  # not the role's, which may be shorter than any answer
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
}


class PartitionLocks:
    """The locks belong to the connection: if it is lost, all locks are lost, and the next call starts again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None
        self._held: frozenset[int] = frozenset()

    async def session(self) -> int:
        """The process id of the server process that holds the locks."""
        return (await self._connected()).get_server_pid()

    async def hold(self, wanted: frozenset[int]) -> frozenset[int]:
        connection = await self._connected()
        with translated_errors():
            try:
                surplus, missing = self._held - wanted, wanted - self._held
                if surplus:
                    await connection.fetch(
                        "SELECT pg_advisory_unlock($1, p) FROM unnest($2::int[]) AS p", _CLASS, sorted(surplus)
                    )
                    self._held -= surplus
                if missing:
                    rows = await connection.fetch(
                        "SELECT p FROM unnest($2::int[]) AS p WHERE pg_try_advisory_lock($1, p)",
                        _CLASS,
                        sorted(missing),
                    )
                    self._held |= {row["p"] for row in rows}
            except BaseException:
                connection.terminate()  # the set of held locks is unknown now, so start again
                raise
        return self._held

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            await self._connection.close(timeout=2)

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._held = frozenset()
            self._connection = await connect(
                self._url, command_timeout=5, server_settings=_KEEPALIVE, target_session_attrs=WRITABLE
            )
        return self._connection
