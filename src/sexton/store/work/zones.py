"""Rows about the time zone data: the releases that plan here, and the schedules that an older release planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.domain.schedule.recurrence import seed_of
from sexton.domain.schedule.zone import names, rules, tzdata_version
from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)
FIRST = UUID(int=0)


class Behind(NamedTuple):
    """A schedule that older data planned, with the rules of its zone in those data."""

    id: UUID
    zone: str
    rules: bytes | None
    tzdata: str  # the release that planned it


class Coming(NamedTuple):
    """A schedule and its planned fires."""

    id: UUID
    tenant: str
    name: str | None
    schedule_json: str
    cursor_at: datetime | None
    old_rules: bytes | None  # of its zone, as they were when it was planned, if they are known
    tzdata: str | None  # the release that planned it
    now: datetime
    planned: Sequence[datetime]  # not started
    decided_at: datetime | None  # the last fire that was started or decided

    @property
    def seed(self) -> str:
        return seed_of(self.tenant, self.name, self.id)


async def newest(connection: Connection) -> str | None:
    """The newest release that has planned here."""
    (row,) = await connection.fetch(_SQL["newest"])
    version: str | None = row["version"]
    return version


async def take_over(connection: Connection, *, now: datetime | None = None) -> bool:
    """From now on, processes with older data leave planning to this one. False if another process has data as new."""
    zones = sorted(names())
    return bool(await connection.fetch(_SQL["take_over"], now, tzdata_version(), zones, [rules(zone) for zone in zones]))


async def behind(connection: Connection, *, after: UUID, limit: int) -> list[UUID]:
    """The next schedules that were planned with older data than ours."""
    return [row["id"] for row in await connection.fetch(_SQL["behind"], after, tzdata_version(), limit)]


async def lock_behind(connection: Connection, ids: Collection[UUID]) -> list[Behind]:
    """Those of them that still have older data. Rows that another session has locked are left out."""
    return [Behind(*row) for row in await connection.fetch(_SQL["lock_behind"], list(ids), tzdata_version())]


async def coming(connection: Connection, ids: Collection[UUID], *, now: datetime | None = None) -> list[Coming]:
    return [Coming(*row) for row in await connection.fetch(_SQL["coming"], now, list(ids))]


async def take_back(connection: Connection, ids: Collection[UUID], *, now: datetime | None = None) -> None:
    """Only waiting runs; promoted ones continue."""
    await connection.fetch(_SQL["take_back"], now, list(ids))


async def set_cursors(connection: Connection, cursors: Mapping[UUID, datetime | None]) -> None:
    await connection.fetch(_SQL["set_cursors"], list(cursors), list(cursors.values()))


async def mark(connection: Connection, ids: Collection[UUID]) -> None:
    """Records that our data plan them from now on."""
    await connection.fetch(_SQL["mark"], list(ids), tzdata_version())


async def forget(connection: Connection, *, now: datetime | None = None) -> None:
    """Older releases that no schedule uses any more."""
    await connection.fetch(_SQL["forget"], now, tzdata_version())
