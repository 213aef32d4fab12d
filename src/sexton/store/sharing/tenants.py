"""What is set for tenants: their share, their limits, a pause. One that is not here has the defaults."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sexton.domain.sharing import TenantSettings
from sexton.store.database import Connection
from sexton.store.sql import statements
from sexton.store.work import runs

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


async def _wake(connection: Connection, _name: str) -> None:
    queues = [row["queue"] for row in await connection.fetch(_SQL["ready_queues"])]
    await runs.announce(connection, queues, due_soon=True)


_STATEMENTS = Statements(_SQL["get"], _SQL["list"], _SQL["lock"], _SQL["pause"], _SQL["resume"], _SQL["remove"])
_TABLE = SettingsTable(Tenant, _STATEMENTS, _wake)
get, get_many, known = _TABLE.get, _TABLE.get_many, _TABLE.known
pause, resume, remove = _TABLE.pause, _TABLE.resume, _TABLE.remove


async def put(connection: Connection, name: str, settings: TenantSettings, *, now: datetime | None = None) -> None:
    """Replaces what was set; a pause stays."""
    (before,) = await _TABLE.lock(connection, name, now)
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
        if before["waiting_max"] is None:
            await connection.fetch(_SQL["count_waiting"], name, settings.waiting_max)
        await connection.fetch(_SQL["recount"], name)
    await _wake(connection, name)
