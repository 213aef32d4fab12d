"""What the tables of tenants and of queues share: settings by name, and a pause.

Each change needs a transaction: it locks the row, then decides (rule "lock, then decide"), and wakes the workers that may have
more to do now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from sexton.store.database import Connection, Row

Kept = TypeVar("Kept", bound=msgspec.Struct)


class Statements(NamedTuple):
    get: str
    list: str
    lock: str  # the first caller makes the row
    pause: str
    resume: str
    remove: str


@dataclass(frozen=True)
class SettingsTable(Generic[Kept]):
    row: type[Kept]  # its fields are the columns that `get` and `list` select, in this order
    sql: Statements
    wake: Callable[[Connection, str], Awaitable[None]]  # the workers that may start what a change lets through

    async def get(self, connection: Connection, name: str) -> Kept | None:
        found = await self.get_many(connection, [name])
        return found.get(name)

    async def get_many(self, connection: Connection, names: Collection[str]) -> dict[str, Kept]:
        return {row["name"]: self.row(*row) for row in await connection.fetch(self.sql.get, list(names))}

    async def known(self, connection: Connection, *, after: str = "", limit: int = 1_000) -> list[Kept]:
        """Those for which something was set, by name."""
        return [self.row(*row) for row in await connection.fetch(self.sql.list, after, limit)]

    async def lock(self, connection: Connection, name: str, now: datetime | None) -> list[Row]:
        return await connection.fetch(self.sql.lock, now, name)

    async def pause(
        self,
        connection: Connection,
        name: str,
        *,
        by: str | None = None,
        note: str | None = None,
        now: datetime | None = None,
    ) -> None:
        """None of its runs starts before it is resumed; what runs goes on, and jobs may be submitted."""
        await self.lock(connection, name, now)
        await connection.fetch(self.sql.pause, name, by, note)

    async def resume(self, connection: Connection, name: str) -> None:
        await connection.fetch(self.sql.resume, name)
        await self.wake(connection, name)

    async def remove(self, connection: Connection, name: str) -> bool:
        """It has the defaults again. False: it had them already."""
        gone = await connection.fetch(self.sql.remove, name)
        await self.wake(connection, name)
        return bool(gone)
