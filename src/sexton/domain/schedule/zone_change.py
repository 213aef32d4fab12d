"""What newer time zone data change for a schedule that was planned with older data: whether the planned fires are still
correct, and at which instant a wall time is now, so that no wall time fires twice and none is lost
(rule "one instant, one fire"). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from . import cron_text, rrule_text
from .fires import EPOCH, unlimited_fires
from .rule import Schedule
from .zone import Dst, instants, wall_of, zone


def is_as_planned(schedule: Schedule, planned: Sequence[datetime], *, after: datetime, until: datetime, seed: str = "") -> bool:
    """True if the data in use give exactly the fires that are planned in (after, until]."""
    found = takewhile(lambda instant: instant <= until, unlimited_fires(schedule, after=after, seed=seed))
    return list(islice(found, len(planned) + 1)) == list(planned)


def moved(schedule: Schedule, fire_at: datetime, was: ZoneInfo, *, seed: str = "") -> tuple[datetime, datetime]:
    """The first and the last instant that have, by the data in use, the wall time that the older data gave for a fire. For a
    rule that keeps real-time spacing, both are the fire itself."""
    where = zone(schedule.timezone)
    if was.utcoffset(fire_at.astimezone(was)) == where.utcoffset(fire_at.astimezone(where)) or _is_spaced(schedule, seed):
        return fire_at, fire_at
    found = instants(where, wall_of(was, fire_at), Dst("after", "both"))
    return found[0], found[-1]


def _is_spaced(schedule: Schedule, seed: str) -> bool:
    if schedule.cron is not None:
        return cron_text.parse(schedule.cron, dialect=schedule.dialect, seed=seed).spaced
    if schedule.rrule is not None:
        return rrule_text.parse(schedule.rrule, timezone=schedule.timezone, anchor_at=schedule.anchor_at or EPOCH).spaced
    return True
