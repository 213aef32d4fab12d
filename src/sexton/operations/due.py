"""Makes due work ready: promotes runs, releases runs that waited for a limit or for an earlier run.

The promoter takes these steps for the partitions that it leads, and for overdue work elsewhere. An idle worker takes all of
them for work that no scheduler has handled, and plans overdue schedules (rule "any node does overdue work")."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sexton.domain.partition import ALL, Scan
from sexton.operations.recurring import due_schedules
from sexton.operations.recurring.admit import admit
from sexton.store.database import Connection, Database
from sexton.store.sharing import parked_runs
from sexton.store.sharing.parked_runs import Released, Tended
from sexton.store.work import runs
from sexton.store.work.runs import Promoted

from .caller import Caller

OVERDUE = Scan(ALL, limit=1000, overdue_s=5.0)  # the runs and plans that an idle worker handles


class OverdueDone(NamedTuple):
    ready_count: int
    stopped_at: str  # the key of a limit after which the next pass continues


async def promote_runs(
    connection: Connection, caller: Caller, scan: Scan, *, since: datetime | None = None, now: datetime | None = None
) -> Promoted:
    """Makes waiting runs ready when they are due, and notifies their queues. Runs that were due before `since` are
    left out."""
    done = await runs.promote(connection, scan, since=since, now=now)
    if done.promoted_count:
        await runs.announce(connection, done.queues)
    return done


async def release_parked(connection: Connection, caller: Caller, *, after: str, now: datetime | None = None) -> Released:
    """Releases runs that wait for a limit, as far as the limit has room."""
    released = await parked_runs.release(connection, after=after, now=now)
    if released.queues:
        await runs.announce(connection, released.queues)
    return released


async def tend_queues(connection: Connection, caller: Caller, *, now: datetime | None = None) -> Tended:
    """Moves runs that waited long enough up a lane, and releases runs of queues with a release rate."""
    tended = await parked_runs.tend(connection, now=now)
    if tended.queues:
        await runs.announce(connection, tended.queues)
    return tended


async def do_overdue_work(database: Database, caller: Caller, *, after: str, now: datetime | None = None) -> OverdueDone:
    """All of the above for overdue work, in every partition, and the planning of schedules."""
    async with database.connection() as connection:
        done = await promote_runs(connection, caller, OVERDUE, now=now)
        ready_count, stopped_at = done.promoted_count, after
        if done.to_release:
            released = await release_parked(connection, caller, after=after, now=now)
            ready_count, stopped_at = ready_count + released.released_count, released.stopped_at
    planned = await due_schedules.plan_fires(database, caller, OVERDUE, unforeseen=lambda _error: None, now=now)
    if planned.behind:
        await due_schedules.follow_zones(database, caller, planned.behind, now=now)
    if done.to_decide:
        admitted = await admit(database, caller, OVERDUE.partitions, limit=OVERDUE.limit, now=now)
        ready_count += admitted.admitted_count
    return OverdueDone(ready_count, stopped_at)
