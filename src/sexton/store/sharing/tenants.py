"""What is set for tenants: their share, their limits, a pause. One that is not here has the defaults.

Each change needs a transaction: it locks the row, then decides (rule "lock, then decide"), and wakes the workers that may have
more to do now."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from sexton.domain.sharing import TenantSettings
from sexton.store.database import Connection
from sexton.store.sql import statements
from sexton.store.work import runs

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


async def put(connection: Connection, name: str, settings: TenantSettings, *, now: datetime | None = None) -> None:
    """Replaces what was set; a pause stays."""
    before = await _lock(connection, name, now)
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
    if settings.waiting_max is not None:
        if before is None:
            await connection.fetch(_SQL["count_waiting"], name, settings.waiting_max)
        await connection.fetch(_SQL["recount"], name)
    await _wake(connection)


async def pause(
    connection: Connection, name: str, *, by: str | None = None, note: str | None = None, now: datetime | None = None
) -> None:
    """None of its runs starts before it is resumed; what runs goes on."""
    await _lock(connection, name, now)
    await connection.fetch(_SQL["pause"], name, by, note)


async def resume(connection: Connection, name: str) -> None:
    await connection.fetch(_SQL["resume"], name)
    await _wake(connection)


async def remove(connection: Connection, name: str) -> bool:
    """It has the defaults again. False: it had them already."""
    gone = await connection.fetch(_SQL["remove"], name)
    await _wake(connection)
    return bool(gone)


async def _lock(connection: Connection, name: str, now: datetime | None) -> int | None:
    (row,) = await connection.fetch(_SQL["lock"], now, name)
    waiting_max: int | None = row["waiting_max"]
    return waiting_max


async def _wake(connection: Connection) -> None:
    queues = [row["queue"] for row in await connection.fetch(_SQL["ready_queues"])]
    await runs.announce(connection, queues, due_soon=True)
