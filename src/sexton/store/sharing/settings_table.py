"""The common part of the tables of tenants and queues: settings by name, and a pause. A change needs a transaction and the
lock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from sexton.store.database import Connection, Row

Kept = TypeVar("Kept", bound=msgspec.Struct)


class Statements(NamedTuple):
    get: str
    list: str
    lock: str
    pause: str
    resume: str
    remove: str


@dataclass(frozen=True)
class SettingsTable(Generic[Kept]):
    row: type[Kept]  # its fields are the columns that `get` and `list` select, in this order
    sql: Statements

    async def get(self, connection: Connection, name: str) -> Kept | None:
        found = await self.get_many(connection, [name])
        return found.get(name)

    async def get_many(self, connection: Connection, names: Collection[str]) -> dict[str, Kept]:
        return {row["name"]: self.row(*row) for row in await connection.fetch(self.sql.get, list(names))}

    async def known(self, connection: Connection, *, after: str = "", limit: int = 1_000) -> list[Kept]:
        """Those that have settings, by name."""
        return [self.row(*row) for row in await connection.fetch(self.sql.list, after, limit)]

    async def lock(self, connection: Connection, name: str, *, now: datetime | None = None) -> list[Row]:
        """Its row, which is created if it does not exist."""
        return await connection.fetch(self.sql.lock, now, name)

    async def pause(self, connection: Connection, name: str, *, by: str | None, note: str | None) -> None:
        await connection.fetch(self.sql.pause, name, by, note)

    async def resume(self, connection: Connection, name: str) -> None:
        await connection.fetch(self.sql.resume, name)

    async def remove(self, connection: Connection, name: str) -> bool:
        """False: it did not exist."""
        return bool(await connection.fetch(self.sql.remove, name))
