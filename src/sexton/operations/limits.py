"""Sets and removes limits by key.

A limit is a number of rows that runs hold: rule "slots, not counts". A change needs a transaction: it locks the limit, then
decides (rule "lock, then decide"), and wakes the promoters, which may release more runs now."""

from __future__ import annotations

from datetime import datetime

from sexton.domain.limit import Limit
from sexton.errors import NotAllowedIn
from sexton.store.database import Connection
from sexton.store.sharing import limits
from sexton.store.views.overview import COUNT_LIMIT
from sexton.store.work import runs

from .caller import Caller


async def put(connection: Connection, caller: Caller, limit: Limit, *, now: datetime | None = None) -> None:
    """Replaces the numbers. A run that holds a slot keeps it, even if the new number is lower."""
    await limits.put(connection, limit, by=caller.actor, now=now)
    await limits.forget_slots(connection, key=limit.key, beyond=limit.running or 0)
    await runs.announce(connection, (), due_soon=True)


async def remove(connection: Connection, caller: Caller, key: str) -> bool:
    """False: there is none. Raises `NotAllowedIn` while runs wait for it, because nothing would hold them back afterwards."""
    if not await limits.lock(connection, key):
        return False
    counts = await limits.counts(connection, key)
    waiting = counts.parked_count + counts.ready_count
    if waiting:
        many = (
            f"{COUNT_LIMIT:,} or more runs wait"
            if waiting > COUNT_LIMIT
            else f"{waiting:,} {'run waits' if waiting == 1 else 'runs wait'}"
        )
        message = f"cannot remove the limit {key!r} while {many} for it; cancel them, or raise the limit instead"
        raise NotAllowedIn("remove", "waited for", message)
    await limits.remove(connection, key)
    await limits.forget_slots(connection, key=key, beyond=0)
    return True
