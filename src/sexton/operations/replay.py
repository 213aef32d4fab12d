"""Replays or discards dead letters, inside a transaction. Rule "a replay consumes its letter"."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from sexton.store.database import Connection
from sexton.store.work import dead_letters, runs
from sexton.store.work.dead_letters import Risen

from .caller import Caller


async def replay(
    connection: Connection, caller: Caller, ids: Collection[UUID], *, keep_key: bool = True, now: datetime | None = None
) -> list[Risen]:
    """Runs them again with a fresh budget. A letter that another replay has taken is left out."""
    rising = await dead_letters.replay(connection, ids, now=now)
    if rising and not keep_key:
        await dead_letters.release_keys(connection, [one.job_id for one, _ in rising])
    if rising:
        await runs.announce(connection, {queue for _, queue in rising}, due_soon=True)
    return [one for one, _ in rising]


async def replay_due(connection: Connection, caller: Caller, *, limit: int, now: datetime | None = None) -> list[Risen]:
    """Replays the letters whose policy makes them due for a replay now."""
    return await replay(connection, caller, await dead_letters.due_for_replay(connection, limit=limit, now=now), now=now)


async def discard(connection: Connection, caller: Caller, ids: Collection[UUID]) -> list[UUID]:
    """Returns the letters that existed. Their jobs stay failed."""
    return await dead_letters.discard(connection, ids)
