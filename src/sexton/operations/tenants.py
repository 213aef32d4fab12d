"""What is set for tenants is changed: their share, their limits, a pause.

Each change needs a transaction: it locks the row, then decides (rule "lock, then decide"), and wakes the workers that may have
more to do now."""

from __future__ import annotations

from datetime import datetime

from sexton.domain.sharing import TenantSettings
from sexton.store.database import Connection
from sexton.store.sharing import tenants
from sexton.store.work import runs

from .caller import Caller


async def put(
    connection: Connection, caller: Caller, name: str, settings: TenantSettings, *, now: datetime | None = None
) -> None:
    """Replaces what was set; a pause stays."""
    waiting_max_before = await tenants.lock(connection, name, now=now)
    await tenants.put(connection, name, settings, now=now)
    if settings.waiting_max is not None:
        if waiting_max_before is None:
            await tenants.count_waiting(connection, name, settings.waiting_max)
        await tenants.recount(connection, name)
    await _wake(connection)


async def pause(
    connection: Connection, caller: Caller, name: str, *, note: str | None = None, now: datetime | None = None
) -> None:
    """None of its runs starts before it is resumed; what runs goes on."""
    await tenants.lock(connection, name, now=now)
    await tenants.pause(connection, name, by=caller.actor, note=note)


async def resume(connection: Connection, caller: Caller, name: str) -> None:
    await tenants.resume(connection, name)
    await _wake(connection)


async def remove(connection: Connection, caller: Caller, name: str) -> bool:
    """It has the defaults again. False: it had them already."""
    is_gone = await tenants.remove(connection, name)
    await _wake(connection)
    return is_gone


async def _wake(connection: Connection) -> None:
    await runs.announce(connection, await tenants.ready_queues(connection), due_soon=True)
