"""Changes the settings of tenants: their share, their limits, a pause."""

from __future__ import annotations

from datetime import datetime

from sexton.domain.sharing import TenantSettings
from sexton.store.database import Connection
from sexton.store.sharing import tenants
from sexton.store.work import runs

from .caller import Caller
from .pausable_settings import PausableSettings


async def put(
    connection: Connection, caller: Caller, name: str, settings: TenantSettings, *, now: datetime | None = None
) -> None:
    """Replaces the settings; a pause stays."""
    (before,) = await tenants.TABLE.lock(connection, name, now=now)
    await tenants.put(connection, name, settings, now=now)
    if settings.waiting_max is not None:
        if before["waiting_max"] is None:
            await tenants.count_waiting(connection, name, settings.waiting_max)
        await tenants.recount(connection, name)
    await _wake(connection, name)


async def _wake(connection: Connection, _name: str) -> None:
    await runs.announce(connection, await tenants.ready_queues(connection), due_soon=True)


TENANTS = PausableSettings(tenants.TABLE, _wake)
pause, resume, remove = TENANTS.pause, TENANTS.resume, TENANTS.remove
