"""Makes due work ready: promotes runs, plans schedules, releases runs that waited for a limit or for an earlier run.

Promoter and planner take these steps for the partitions that they lead, and for overdue work elsewhere. An idle worker takes
all of them for work that no scheduler has handled (rule "any node does overdue work")."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.domain import partition
from sexton.store.database import Connection, Database
from sexton.store.sharing import parked_runs
from sexton.store.sharing.parked_runs import Released, Tended
from sexton.store.work import runs, schedules
from sexton.store.work.runs import Promoted
from sexton.store.work.schedules import Locked, ToPlan

from . import plan, replan
from .admit import admit
from .caller import Caller
from .division import Divided, in_parts
from .plan import Planned

OVERDUE_S = 5.0  # an idle worker handles runs and plans that are overdue by this much
OVERDUE_LIMIT = 1000


class FiresPlanned(NamedTuple):
    seen: list[ToPlan]  # without those that another session has locked
    behind: list[UUID]  # left out: planned with older time zone data, see `follow_zones`
    planned: Planned


class OverdueDone(NamedTuple):
    ready_count: int
    stopped_at: str  # the key of a limit after which the next pass continues


async def promote_runs(
    connection: Connection,
    caller: Caller,
    partitions: Collection[int],
    *,
    limit: int,
    overdue_s: float = 0.0,
    since: datetime | None = None,
    now: datetime | None = None,
) -> Promoted:
    """Makes waiting runs ready when they are due, and notifies their queues. Runs that were due before `since` are
    left out."""
    done = await runs.promote(connection, partitions=partitions, limit=limit, overdue_s=overdue_s, since=since, now=now)
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


async def plan_fires(
    database: Database,
    caller: Caller,
    partitions: Collection[int],
    *,
    limit: int,
    overdue_s: float = 0.0,
    announce_within_s: float | None = None,
    unforeseen: Callable[[Exception], None],
    now: datetime | None = None,
) -> FiresPlanned:
    """Plans the next runs of schedules. Notifies the promoters if one is due within `announce_within_s`. Schedules that another
    session has locked are left for the next pass; if they fill a batch, the ones behind them are planned as well."""
    seen: list[ToPlan] = []
    behind: list[UUID] = []
    planned = Planned([], None, 0, [])

    async def write(connection: Connection, part: Sequence[ToPlan]) -> Planned:
        done = await plan.write(connection, caller, part, now=now, unforeseen=unforeseen)
        if announce_within_s is not None and done.next_due_s is not None and done.next_due_s < announce_within_s:
            await runs.announce(connection, (), due_soon=True)
        return done

    while True:
        async with database.connection() as connection:
            batch = await schedules.to_plan(
                connection, partitions=partitions, limit=limit, overdue_s=overdue_s, without=planned.locked, now=now
            )
        older = set(replan.those_behind(batch))
        fresh = [one for one in batch if one.id not in older]
        written = await in_parts(database, fresh, write) if fresh else Divided([], [])
        locked = [one.id for one in written.left] + [job_id for part in written.answers for job_id in part.locked]
        planned = _together([planned, *written.answers], [*planned.locked, *locked])
        is_locked = set(locked)
        seen += [one for one in batch if one.id not in is_locked]
        behind += [one.id for one in batch if one.id in older]
        if not locked or len(batch) < limit:
            return FiresPlanned(seen, behind, planned)


def _together(parts: Sequence[Planned], locked: list[UUID]) -> Planned:
    return Planned(
        [job_id for part in parts for job_id in part.ids],
        min((part.next_due_s for part in parts if part.next_due_s is not None), default=None),
        sum(part.missed_count for part in parts),
        locked,
    )


async def follow_zones(database: Database, caller: Caller, behind: Sequence[UUID], *, now: datetime | None = None) -> int:
    """Rule "one instant, one fire": these were planned with older time zone data, and the guardian has not reached them yet.
    Returns how many of them change."""

    async def follow(connection: Connection, part: Sequence[UUID]) -> int:
        seen = await replan.to_plan_now(connection, caller, part, waits=False, now=now)
        await plan.write(connection, caller, seen, now=now)
        return sum(one.is_bare for one in seen)

    return sum((await in_parts(database, behind, follow, atomic=True)).answers)


async def decide_due(
    connection: Connection,
    caller: Caller,
    locked: Sequence[Locked],
    *,
    may_end: bool = True,
    now: datetime | None = None,
) -> None:
    """Fires that came due in a pause, or while no planner planned, are not written yet. Before these schedules end or change
    their rule, their policies decide about such fires, so that history records them (rule "job row first"). A schedule whose
    rule was never read has no fires."""
    for resumed in (False, True):
        ids = [one.id for one in locked if one.tzdata is not None and (one.paused_at is not None) == resumed]
        if not ids:
            continue
        if resumed:
            await schedules.wake(connection, ids, now=now)
        seen = await replan.to_plan_now(connection, caller, ids, stand_back=False, now=now)
        undecided = [one for one in seen if plan.has_due(one, resumed=resumed)]
        await plan.write(connection, caller, undecided, resumed=resumed, may_end=may_end, now=now)


async def see_to_overdue(database: Database, caller: Caller, *, after: str, now: datetime | None = None) -> OverdueDone:
    """All of the above for overdue work, in every partition."""
    async with database.connection() as connection:
        done = await promote_runs(connection, caller, partition.ALL, limit=OVERDUE_LIMIT, overdue_s=OVERDUE_S, now=now)
        ready_count, stopped_at = done.promoted_count, after
        if done.to_release:
            released = await release_parked(connection, caller, after=after, now=now)
            ready_count, stopped_at = ready_count + released.released_count, released.stopped_at
    planned = await plan_fires(
        database, caller, partition.ALL, limit=OVERDUE_LIMIT, overdue_s=OVERDUE_S, unforeseen=lambda _error: None, now=now
    )
    if planned.behind:
        await follow_zones(database, caller, planned.behind, now=now)
    if done.to_decide:
        admitted = await admit(database, caller, partition.ALL, limit=OVERDUE_LIMIT, now=now)
        ready_count += admitted.admitted_count
    return OverdueDone(ready_count, stopped_at)
