"""The release of the time zone data that schedules are planned with, and what a newer one changes.

Rule "one instant, one fire": only newer data replan. What waits and is not right any more is taken back and planned anew, a
batch of jobs per transaction. Each job carries the release it was planned with, so after a crash the next node goes on where
the last one stopped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from sexton.domain.fault import Invalid
from sexton.domain.schedule.recurrence import seed_of
from sexton.domain.schedule.zone import names, rules, tzdata_version, zone_of_rules
from sexton.domain.schedule.zone_change import is_as_planned, moved
from sexton.store.database import Connection, Row
from sexton.store.sql import statements

from . import planning, runs, schedules
from .schedules import ToPlan

_SQL = statements(__name__)
_TICK = timedelta(microseconds=1)
FIRST = UUID(int=0)


class Coming(NamedTuple):
    """A schedule with what is planned of it."""

    id: UUID
    tenant: str
    name: str | None
    schedule_json: str
    cursor_at: datetime | None
    old_rules: bytes | None  # of its zone, as they were when it was planned, if they are known
    now: datetime
    planned: Sequence[datetime]  # not begun
    decided_at: datetime | None  # the last fire that was begun or decided about

    @property
    def seed(self) -> str:
        return seed_of(self.tenant, self.name, self.id)


async def newest(connection: Connection) -> str | None:
    """The newest release that has planned here."""
    (row,) = await connection.fetch(_SQL["newest"])
    version: str | None = row["version"]
    return version


async def take_over(connection: Connection, *, now: datetime | None = None) -> bool:
    """From here on, who has older data than this process stands back. False if others have data as new."""
    zones = sorted(names())
    return bool(await connection.fetch(_SQL["take_over"], now, tzdata_version(), zones, [rules(zone) for zone in zones]))


async def behind(connection: Connection, *, after: UUID, limit: int) -> list[UUID]:
    """The next schedules that were planned with older data than ours."""
    return [row["id"] for row in await connection.fetch(_SQL["behind"], after, tzdata_version(), limit)]


async def follow(connection: Connection, ids: Collection[UUID], *, now: datetime | None = None) -> list[UUID]:
    """Takes back what our data plan otherwise; those jobs are to be planned anew, in the same transaction. What came from
    elsewhere meanwhile, or is locked, is left alone."""
    version = tzdata_version()
    locked = {row["id"]: _has_other_rules(row) for row in await connection.fetch(_SQL["lock_behind"], list(ids), version)}
    elsewhere = [job_id for job_id, has_other_rules in locked.items() if has_other_rules]
    changed = {one.id: one for one in await _coming(connection, elsewhere, now) if _has_changed(one)} if elsewhere else {}
    if changed:
        await connection.fetch(_SQL["take_back"], now, list(changed))
        # Looked at again: what was promoted meanwhile has begun, and nothing else can begin now.
        cursors = {one.id: _cursor_at(one, changed[one.id].planned) for one in await _coming(connection, list(changed), now)}
        await connection.fetch(_SQL["set_cursors"], list(cursors), list(cursors.values()))
    if locked:
        await connection.fetch(_SQL["mark"], list(locked), version)
    return list(changed)


async def replan(connection: Connection, ids: Collection[UUID], *, now: datetime | None = None) -> list[UUID]:
    """Follows our data and plans what they change. It wants a transaction."""
    changed = await follow(connection, ids, now=now)
    if changed:
        seen = await schedules.to_plan_now(connection, changed, stand_back=False, now=now)
        await planning.write(connection, [one._replace(is_bare=True) for one in seen], now=now)
        await runs.announce(connection, (), due_soon=True)
    return changed


async def to_plan_now(
    connection: Connection, ids: Collection[UUID], *, stand_back: bool = True, now: datetime | None = None
) -> list[ToPlan]:
    """As `schedules.to_plan_now`, but nothing is planned on top of what older data planned."""
    seen = await schedules.to_plan_now(connection, ids, stand_back=stand_back, now=now)
    if not (older := those_behind(seen)):
        return seen
    changed = set(await follow(connection, older, now=now))
    seen = await schedules.to_plan_now(connection, ids, stand_back=stand_back, now=now)
    return [one._replace(is_bare=one.id in changed) for one in seen]


def those_behind(seen: Sequence[ToPlan]) -> list[UUID]:
    """Those to be followed before they are planned: else a wall time that has fired could be planned once more. Releases sort
    as texts do."""
    version = tzdata_version()
    return [one.id for one in seen if one.tzdata is not None and one.tzdata < version]


async def forget(connection: Connection, *, now: datetime | None = None) -> None:
    """Older releases that nothing is planned by any more."""
    await connection.fetch(_SQL["forget"], now, tzdata_version())


async def _coming(connection: Connection, ids: Collection[UUID], now: datetime | None) -> list[Coming]:
    return [Coming(*row) for row in await connection.fetch(_SQL["coming"], now, list(ids))]


def _has_other_rules(row: Row) -> bool:
    """Most zones are the same in the next release, and nothing planned in them changes."""
    return row["zone"] != "UTC" and (row["zone"] not in names() or row["rules"] != rules(row["zone"]))


def _has_changed(one: Coming) -> bool:
    try:
        rule = planning.known(one.schedule_json)
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
        return False  # a planner will say what is wrong with it


def _cursor_at(one: Coming, taken_back: Sequence[datetime]) -> datetime | None:
    """From where to plan it now: not before the last wall time that has fired, and not after the first that was to come, though
    its instant may lie in the past by now; catch-up decides about that one."""
    cursor_at = one.cursor_at
    if cursor_at is not None and taken_back:
        cursor_at = min(cursor_at, _moved(one, taken_back[0])[0] - _TICK)
    if cursor_at is not None and one.decided_at is not None:
        cursor_at = max(cursor_at, _moved(one, one.decided_at)[1])
    return cursor_at


def _moved(one: Coming, fire_at: datetime) -> tuple[datetime, datetime]:
    if one.old_rules is None:
        return fire_at, fire_at
    rule = planning.known(one.schedule_json)
    return moved(rule, fire_at, zone_of_rules(rule.timezone, one.old_rules), seed=one.seed)
