"""Plans the next fires of the schedules that are due for it, and brings those up to date that older time zone data planned.

The planner takes these steps for the partitions that it leads, and for what is overdue elsewhere. An idle worker takes them for
what no planner has handled (rule "any node does overdue work")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sexton.domain.partition import Scan
from sexton.operations.bisection import Divided, in_parts
from sexton.operations.caller import Caller
from sexton.store.database import Connection, Database
from sexton.store.work import runs, schedules
from sexton.store.work.schedules import Locked, ToPlan

from . import plan, replan
from .plan import Planned


class FiresPlanned(NamedTuple):
    seen: list[ToPlan]  # without those that another session has locked
    behind: list[UUID]  # left out: planned with older time zone data, see `follow_zones`
    planned: Planned


async def plan_fires(
    database: Database,
    caller: Caller,
    scan: Scan,
    *,
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
            batch = await schedules.to_plan(connection, scan, without=planned.locked, now=now)
        older = set(replan.with_older_zones(batch))
        fresh = [one for one in batch if one.id not in older]
        written = await in_parts(database, fresh, write) if fresh else Divided([], [])
        locked = [one.id for one in written.left] + [job_id for part in written.answers for job_id in part.locked]
        planned = _together([planned, *written.answers], [*planned.locked, *locked])
        is_locked = set(locked)
        seen += [one for one in batch if one.id not in is_locked]
        behind += [one.id for one in batch if one.id in older]
        if not locked or len(batch) < scan.limit:
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
        seen = await replan.to_plan_now(connection, caller, ids, defers_to_newer_data=False, now=now)
        seen = [one._replace(is_resumed=resumed, may_end=may_end) for one in seen]
        await plan.write(connection, caller, [one for one in seen if plan.has_due(one)], now=now)
