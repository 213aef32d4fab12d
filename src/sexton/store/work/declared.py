"""Schedules that an app's code declares: written by name, from many processes at once, and ended when the code drops them.

Each call needs the transaction that `begin` has opened."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.store.database import Connection
from sexton.store.sql import statements

PRUNED = "its declaration was removed from the code"

_SQL = statements(__name__)
_encode = msgspec.json.Encoder().encode


class Undeclared(NamedTuple):
    id: UUID
    name: str


async def begin(connection: Connection, *, now: datetime | None = None) -> datetime:
    """Keeps other processes from syncing until the transaction ends. Returns the time."""
    (row,) = await connection.fetch(_SQL["begin"], now)
    at: datetime = row["now"]
    return at


async def ended(connection: Connection, documents: Sequence[object]) -> set[str]:
    """The names of declared schedules that did not change and have ended, by their own rule or by a person."""
    return {row["name"] for row in await connection.fetch(_SQL["ended"], _encode(documents).decode(), PRUNED)}


async def adopt(connection: Connection, ids: Collection[UUID], mark: str) -> None:
    await connection.fetch(_SQL["adopt"], list(ids), mark)


async def undeclared(connection: Connection, mark: str, names: Collection[str]) -> list[Undeclared]:
    return [Undeclared(*row) for row in await connection.fetch(_SQL["undeclared"], mark, list(names))]
