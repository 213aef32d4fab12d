"""Schedules that an app's code declares: written by name, from many processes at once, and ended when the code drops them.

Each call needs the transaction that `begin` has opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.store.database import Connection
from sexton.store.sql import statements

PRUNED = "its declaration was removed from the code"

_SQL = statements(__name__)
_encode = msgspec.json.Encoder().encode


class Known(NamedTuple):
    """The schedule that a name belongs to."""

    id: UUID
    digest: str | None  # of what the code declared last; null: nothing, or by a release that did not record it
    is_live: bool
    is_pruned: bool
    is_edited: bool  # its last change was not made by a sync
    is_renamed: bool  # it was declared with the name, and has another now


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


async def known(connection: Connection, names: Collection[str]) -> dict[str, Known]:
    """By name; a name that was never used is left out."""
    rows = await connection.fetch(_SQL["known"], list(names), PRUNED)
    return {row["name"]: Known(*row[1:]) for row in rows}


async def record(connection: Connection, ids: Mapping[str, UUID], digests: Mapping[str, str]) -> None:
    """What the code declares now, by name."""
    await connection.fetch(_SQL["record"], list(ids.values()), list(ids), [digests[name] for name in ids])


async def adopt(connection: Connection, ids: Collection[UUID], mark: str) -> None:
    await connection.fetch(_SQL["adopt"], list(ids), mark)


async def undeclared(connection: Connection, mark: str, names: Collection[str]) -> list[Undeclared]:
    return [Undeclared(*row) for row in await connection.fetch(_SQL["undeclared"], mark, list(names))]
