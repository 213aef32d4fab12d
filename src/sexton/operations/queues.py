"""What is set for queues is changed: a pause, the pace they release runs at, ageing, and defaults of their jobs.

Each change needs a transaction: it locks the row, then decides (rule "lock, then decide"), and wakes the queue's workers."""

from __future__ import annotations

from datetime import datetime

from sexton.domain.sharing import QueueSettings
from sexton.store.database import Connection
from sexton.store.sharing import queues
from sexton.store.work import runs

from .caller import Caller


async def put(
    connection: Connection, caller: Caller, name: str, settings: QueueSettings, *, now: datetime | None = None
) -> None:
    """Replaces what was set; a pause stays."""
    await queues.lock(connection, name, now=now)
    await queues.put(connection, name, settings, now=now)
    await runs.announce(connection, [name], due_soon=True)


async def pause(
    connection: Connection, caller: Caller, name: str, *, note: str | None = None, now: datetime | None = None
) -> None:
    """Nothing in it starts before it is resumed; what runs goes on, and jobs may be submitted."""
    await queues.lock(connection, name, now=now)
    await queues.pause(connection, name, by=caller.actor, note=note)


async def resume(connection: Connection, caller: Caller, name: str) -> None:
    await queues.resume(connection, name)
    await runs.announce(connection, [name], due_soon=True)


async def remove(connection: Connection, caller: Caller, name: str) -> bool:
    """It has the defaults again. False: it had them already."""
    is_gone = await queues.remove(connection, name)
    await runs.announce(connection, [name], due_soon=True)
    return is_gone
