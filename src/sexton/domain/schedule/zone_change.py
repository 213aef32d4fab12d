"""What newer time zone data, or a newer reading of rules, change for a schedule that older ones planned: whether the planned
fires are still correct, and at which instant a wall time is now, so that no wall time fires twice and none is lost
(rule "one instant, one fire"). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from . import cron_text, rrule_text
from .fires import EPOCH, unlimited_fires
from .rule import Schedule
from .zone import Dst, instants, wall_of, zone

_TICK = timedelta(microseconds=1)


def is_as_planned(schedule: Schedule, planned: Sequence[datetime], *, after: datetime, until: datetime, seed: str = "") -> bool:
    """True if the data in use give exactly the fires that are planned in (after, until]."""
    found = takewhile(lambda instant: instant <= until, unlimited_fires(schedule, after=after, seed=seed))
    return list(islice(found, len(planned) + 1)) == list(planned)


def moved(schedule: Schedule, fire_at: datetime, was: ZoneInfo, *, seed: str = "") -> tuple[datetime, datetime]:
    """The first and the last instant that have, by the data in use, the wall time that the older data gave for a fire. For a
    rule that follows the clock, both are the fire itself."""
    where = zone(schedule.timezone)
    if was.utcoffset(fire_at.astimezone(was)) == where.utcoffset(fire_at.astimezone(where)) or _follows_clock(schedule, seed):
        return fire_at, fire_at
    found = instants(where, wall_of(was, fire_at), Dst("after", "both"))
    return found[0], found[-1]


def read_anew(schedule: Schedule, fire_at: datetime, *, seed: str = "") -> datetime:
    """The instant at which our reading has the fire that an older reading had at `fire_at`: the other pass of a repeated hour,
    if only that one is a fire now. Otherwise `fire_at`."""
    where = zone(schedule.timezone)
    again = instants(where, wall_of(where, fire_at), Dst("after", "last"))[0]
    coming = takewhile(lambda at: at <= again, unlimited_fires(schedule, after=fire_at - _TICK, seed=seed))
    return again if fire_at < again and next(coming, None) == again else fire_at


def _follows_clock(schedule: Schedule, seed: str) -> bool:
    if schedule.cron is not None:
        return cron_text.parse(schedule.cron, dialect=schedule.dialect, seed=seed).follows_clock
    if schedule.rrule is not None:
        return rrule_text.parse(schedule.rrule, timezone=schedule.timezone, anchor_at=schedule.anchor_at or EPOCH).follows_clock
    return True
