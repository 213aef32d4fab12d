"""Settings of tenants: their share, their limits, a pause. A tenant without a row has the defaults."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sexton.domain.sharing import TenantSettings
from sexton.store.database import Connection
from sexton.store.sql import statements

from .settings_table import SettingsTable, Statements

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


_STATEMENTS = Statements(_SQL["get"], _SQL["list"], _SQL["lock"], _SQL["pause"], _SQL["resume"], _SQL["remove"])
TABLE = SettingsTable(Tenant, _STATEMENTS)
get, get_many, known = TABLE.get, TABLE.get_many, TABLE.known


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


async def ready_queues(connection: Connection) -> list[str]:
    return [row["queue"] for row in await connection.fetch(_SQL["ready_queues"])]
