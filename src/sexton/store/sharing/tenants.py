"""What is set for tenants: their share, their limits, a pause. One that is not here has the defaults."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from sexton.domain.sharing import TenantSettings
from sexton.store.database import Connection
from sexton.store.sql import statements

_SQL = statements(__name__)


class Tenant(msgspec.Struct, frozen=True):
    name: str
    weight: int
    running_max: int | None
    waiting_max: int | None
    submit_rate: float | None
    submit_burst: int | None
    jitter_s: float | None
    paused_at: datetime | None
    paused_by: str | None
    note: str | None
    updated_at: datetime


async def get(connection: Connection, name: str) -> Tenant | None:
    found = await get_many(connection, [name])
    return found.get(name)


async def get_many(connection: Connection, names: Collection[str]) -> dict[str, Tenant]:
    return {row["name"]: Tenant(*row) for row in await connection.fetch(_SQL["get"], list(names))}


async def known(connection: Connection, *, after: str = "", limit: int = 1_000) -> list[Tenant]:
    """Those for which something was set, by name."""
    return [Tenant(*row) for row in await connection.fetch(_SQL["list"], after, limit)]


async def lock(connection: Connection, name: str, *, now: datetime | None = None) -> int | None:
    """Its row, which is made if there is none; how many of its runs may wait."""
    (row,) = await connection.fetch(_SQL["lock"], now, name)
    waiting_max: int | None = row["waiting_max"]
    return waiting_max


async def put(connection: Connection, name: str, settings: TenantSettings, *, now: datetime | None = None) -> None:
    await connection.fetch(
        _SQL["put"],
        now,
        name,
        settings.weight,
        settings.running_max,
        settings.waiting_max,
        settings.submit_rate,
        settings.submit_burst,
        settings.jitter_s,
    )


async def count_waiting(connection: Connection, name: str, waiting_max: int) -> None:
    await connection.fetch(_SQL["count_waiting"], name, waiting_max)


async def recount(connection: Connection, name: str) -> None:
    await connection.fetch(_SQL["recount"], name)


async def pause(connection: Connection, name: str, *, by: str | None, note: str | None) -> None:
    await connection.fetch(_SQL["pause"], name, by, note)


async def resume(connection: Connection, name: str) -> None:
    await connection.fetch(_SQL["resume"], name)


async def remove(connection: Connection, name: str) -> bool:
    return bool(await connection.fetch(_SQL["remove"], name))


async def ready_queues(connection: Connection) -> list[str]:
    return [row["queue"] for row in await connection.fetch(_SQL["ready_queues"])]
