"""Applies newer time zone data, or a newer reading of rules, to schedules that older ones planned.

Rule "one instant, one fire": only newer data replan. Waiting runs that are no longer right are removed and planned again, a
batch of jobs per transaction. Each job stores the release it was planned with, so after a crash the next node continues where
the last one stopped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from sexton.domain.fault import Invalid
from sexton.domain.schedule.zone import names, reading_of, rules, tzdata_version, zone_of_rules
from sexton.domain.schedule.zone_change import is_as_planned, moved, read_anew
from sexton.operations.caller import Caller
from sexton.store.database import Connection
from sexton.store.work import runs, schedules, zones
from sexton.store.work.schedules import ToPlan
from sexton.store.work.zones import Behind, Coming

from . import plan

_TICK = timedelta(microseconds=1)


async def follow(
    connection: Connection, caller: Caller, ids: Collection[UUID], *, waits: bool = False, now: datetime | None = None
) -> list[UUID]:
    """Removes runs that our data plan differently. Those jobs must be planned again in the same transaction. Jobs that another
    node has updated meanwhile, or that are locked, do not change. Nor do those with a locked run, unless the caller waits."""
    locked = {one.id: _has_other_rules(one) for one in await zones.lock_behind(connection, ids)}
    elsewhere = [job_id for job_id, has_other_rules in locked.items() if has_other_rules]
    changed = (
        {one.id: one for one in await zones.coming(connection, elsewhere, now=now) if _has_changed(one)} if elsewhere else {}
    )
    if changed and not waits:
        free = await schedules.hold_runs(connection, list(changed), ["waiting"])
        for job_id in changed.keys() - free:
            del changed[job_id], locked[job_id]
    if changed:
        await zones.take_back(connection, list(changed), now=now)
        # Read again: a run that was promoted meanwhile has started, and no other can start now.
        left = await zones.coming(connection, list(changed), now=now)
        await zones.set_cursors(connection, {one.id: _cursor_at(one, changed[one.id].planned) for one in left})
    if locked:
        await zones.mark(connection, list(locked))
    return list(changed)


async def replan(connection: Connection, caller: Caller, ids: Collection[UUID], *, now: datetime | None = None) -> list[UUID]:
    """Applies our data and plans the changes. It needs a transaction."""
    changed = await follow(connection, caller, ids, now=now)
    if changed:
        seen = await schedules.to_plan_now(connection, changed, defers_to_newer_data=False, now=now)
        await plan.write(connection, caller, [one._replace(is_bare=True) for one in seen], now=now)
        await runs.announce(connection, (), due_soon=True)
    return changed


async def to_plan_now(
    connection: Connection,
    caller: Caller,
    ids: Collection[UUID],
    *,
    defers_to_newer_data: bool = True,
    waits: bool = True,
    now: datetime | None = None,
) -> list[ToPlan]:
    """As `schedules.to_plan_now`, but adds nothing to what older data planned: a schedule that is still behind is left out."""
    seen = await schedules.to_plan_now(connection, ids, defers_to_newer_data=defers_to_newer_data, now=now)
    if not (older := with_older_zones(seen)):
        return seen
    changed = set(await follow(connection, caller, older, waits=waits, now=now))
    seen = await schedules.to_plan_now(connection, ids, defers_to_newer_data=defers_to_newer_data, now=now)
    still_behind = set(with_older_zones(seen))
    return [one._replace(is_bare=one.id in changed) for one in seen if one.id not in still_behind]


def with_older_zones(seen: Sequence[ToPlan]) -> list[UUID]:
    """Those that must be updated before they are planned. Otherwise a wall time that has fired could be planned again. Releases
    sort as text."""
    version = tzdata_version()
    return [one.id for one in seen if one.tzdata is not None and one.tzdata < version]


def _has_other_rules(behind: Behind) -> bool:
    """Most time zones are the same in the next release, and their plans do not change, unless rules are now read differently.
    Where clocks never change, all readings agree."""
    if behind.zone == "UTC":
        return False
    return behind.zone not in names() or behind.rules != rules(behind.zone) or reading_of(behind.tzdata) != _reading()


def _has_changed(one: Coming) -> bool:
    try:
        rule = plan.known(one.schedule_json)
        if one.cursor_at is None:
            return False
        after = min([one.cursor_at, one.now, *(first - _TICK for first in one.planned[:1])])
        if one.decided_at is not None:
            fired_until = _moved(one, one.decided_at)[1]
            if fired_until > max(one.cursor_at, one.decided_at):
                return True
            after = max(after, fired_until)
        return not is_as_planned(rule, one.planned, after=after, until=one.cursor_at, seed=one.seed)
    except (Invalid, msgspec.DecodeError):
        return False  # a planner will report what is wrong with it


def _cursor_at(one: Coming, taken_back: Sequence[datetime]) -> datetime | None:
    """The instant to plan from: not before the last wall time that has fired, and not after the first planned wall time. The
    instant of the latter may now be in the past; then the catch-up policy decides."""
    cursor_at = one.cursor_at
    if cursor_at is not None and taken_back:
        cursor_at = min(cursor_at, _moved(one, taken_back[0])[0] - _TICK)
    if cursor_at is not None and one.decided_at is not None:
        cursor_at = max(cursor_at, _moved(one, one.decided_at)[1])
    return cursor_at


def _moved(one: Coming, fire_at: datetime) -> tuple[datetime, datetime]:
    rule, first, last = plan.known(one.schedule_json), fire_at, fire_at
    if one.old_rules is not None:
        first, last = moved(rule, fire_at, zone_of_rules(rule.timezone, one.old_rules), seed=one.seed)
    if one.tzdata is not None and reading_of(one.tzdata) != _reading():
        last = max(last, read_anew(rule, fire_at, seed=one.seed))
    return first, last


def _reading() -> str:
    return reading_of(tzdata_version())
