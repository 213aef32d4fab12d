"""Creates and removes subscriptions. Cancels or resends their deliveries, which are jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sexton.domain.subscription import Subscription
from sexton.store.database import Connection, Database
from sexton.store.work import runs, subscriptions

from .caller import Caller
from .cancel import stop_runs
from .replay import replay as replay_letters

CHUNK = 500  # deliveries per transaction


async def put(connection: Connection, caller: Caller, given: Subscription, *, now: datetime | None = None) -> bool:
    """Creates it, or replaces it for future events; deliveries that already exist do not change. True: it is new."""
    return await subscriptions.put(connection, given, now=now)


async def remove(database: Database, caller: Caller, name: str, *, now: datetime | None = None) -> int | None:
    """Creates no further deliveries for it, and cancels the undelivered ones. Returns how many; `None` if it does not exist.

    It is paused first, so that a failed call can be repeated."""
    async with database.transaction() as connection:
        if not await subscriptions.pause(connection, name, now=now):
            return None
    count = await _cancel_undelivered(database, caller, name, now)
    async with database.transaction() as connection:
        await subscriptions.remove(connection, name)
    return count


async def _cancel_undelivered(database: Database, caller: Caller, name: str, now: datetime | None) -> int:
    """In many short transactions: there may be the deliveries of a whole day."""
    count, before = 0, None
    while True:
        async with database.transaction() as connection:
            found = await subscriptions.undelivered(connection, name, before=before, limit=CHUNK)
            reason = f"the subscription {name} was removed"
            count += await cancel(connection, caller, found.job_ids, reason=reason, now=now)
        if found.looked_until is None:
            return count
        before = found.looked_until


async def cancel(
    connection: Connection, caller: Caller, job_ids: Sequence[UUID], *, reason: str, now: datetime | None = None
) -> int:
    """Ends the waiting ones, and asks those being sent to stop. Returns how many. Inside a transaction."""
    leases = await subscriptions.leases(connection, job_ids)
    await stop_runs(connection, caller, leases, reason=reason, now=now)
    return len(leases)


async def replay(
    connection: Connection, caller: Caller, name: str, job_ids: Sequence[UUID], *, now: datetime | None = None
) -> list[UUID]:
    """Sends ended deliveries again, to the current URL of the subscription. Returns those that were replayed. The id of the
    message stays the same. Inside a transaction."""
    ours = await subscriptions.retarget(connection, name, job_ids)
    letters = await subscriptions.letters(connection, ours)
    risen = {one.job_id for one in await replay_letters(connection, caller, letters, now=now)} if letters else set()
    reopened = await subscriptions.reopen(connection, [job_id for job_id in ours if job_id not in risen], now=now)
    if reopened:
        await runs.announce(connection, {one.queue for one in reopened}, due_soon=True)
    return sorted(risen | {one.job_id for one in reopened})
