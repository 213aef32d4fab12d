"""When a schedule fires: its nominal instants in UTC, increasing and distinct. The same arguments give the same fires on every
node, so only the last planned fire has to be stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

from sexton.domain.fault import Invalid

from . import cron_text, rrule_fires, rrule_text
from .cron import LAST_YEAR
from .exclusion import excluded_until, exclusions
from .rrule import Budget
from .rule import Schedule
from .spread import fraction
from .zone import FOLLOWS_CLOCK, resolve, zone

_TICK = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC)
_EXCLUSION_LIMIT = 1_000  # excluded ranges in a row before a schedule counts as ended


def fires(schedule: Schedule, *, after: datetime, seed: str = "", fired_count: int = 0) -> Iterator[datetime]:
    """The nominal fires strictly after `after`; `fired_count` of `max_fires` are already used. Jitter is not included."""
    found = unlimited_fires(schedule, after=after, seed=seed)
    return found if schedule.max_fires is None else islice(found, max(0, schedule.max_fires - fired_count))


def next_fire(schedule: Schedule, *, after: datetime, seed: str = "", fired_count: int = 0) -> datetime | None:
    return next(fires(schedule, after=after, seed=seed, fired_count=fired_count), None)


def unlimited_fires(schedule: Schedule, *, after: datetime, seed: str = "") -> Iterator[datetime]:
    """As `fires`, but ignores `max_fires`."""
    if after.tzinfo is None:
        raise Invalid("after", "give an instant with an offset, such as 2026-03-01T09:00:00Z")
    after = max(after.astimezone(UTC), EPOCH - _TICK)
    if after >= _LAST:
        return iter(())
    if schedule.start_at is not None:
        after = max(after, schedule.start_at - _TICK)
    return _allowed(schedule, after, seed)


def jitter_of(schedule: Schedule, seed: str) -> timedelta:
    """The shift of each nominal fire: constant for one seed, evenly distributed over seeds."""
    if schedule.jitter is None:
        return timedelta(0)
    share = fraction(seed, "jitter")
    return timedelta(seconds=schedule.jitter.max_s * (2 * share - 1 if schedule.jitter.both else share))


def last_fire(schedule: Schedule, *, after: datetime, until: datetime, seed: str = "") -> datetime | None:
    """The latest nominal fire in (after, until], found by bisection: about 50 searches for any number of fires."""
    latest = next(unlimited_fires(schedule, after=after, seed=seed), None)
    if latest is None or latest > until:
        return None
    beyond = until
    while True:
        following = next(unlimited_fires(schedule, after=latest, seed=seed), None)
        if following is None or following > until:
            return latest
        latest = following
        middle = latest + (beyond - latest) / 2
        found = next(unlimited_fires(schedule, after=middle, seed=seed), None)
        if found is not None and found <= until:
            latest = found
        else:
            beyond = middle


def _allowed(schedule: Schedule, after: datetime, seed: str) -> Iterator[datetime]:
    end = _LAST if schedule.end_at is None else schedule.end_at
    if not schedule.exclude:
        yield from takewhile(lambda instant: instant <= end, _nominal(schedule, after, seed))
        return
    where, excluded = zone(schedule.timezone), exclusions(schedule.exclude)
    in_vain = 0
    search_budget = Budget(
        total=True
    )  # shared by all searches up to the next fire: otherwise a thousand exclusions take a minute
    while in_vain < _EXCLUSION_LIMIT:
        for instant in _nominal(schedule, after, seed, search_budget):
            if instant > end:
                return
            until = excluded_until(excluded, where, instant)
            if until is not None:
                after = until - _TICK
                in_vain += 1
                break
            in_vain = 0
            search_budget.refill()
            yield instant
        else:
            return


def _nominal(schedule: Schedule, after: datetime, seed: str, search_budget: Budget | None = None) -> Iterator[datetime]:
    if schedule.every_s is not None:
        return _every(schedule, after)
    where = zone(schedule.timezone)
    if schedule.cron is not None:
        cron = cron_text.parse(schedule.cron, dialect=schedule.dialect, seed=seed)
        return resolve(cron.walls, where, FOLLOWS_CLOCK if cron.follows_clock else schedule.dst_pair, after)
    recurrence = rrule_text.parse(schedule.rrule or "", timezone=schedule.timezone, anchor_at=schedule.anchor_at or EPOCH)
    return rrule_fires.fires(recurrence, where, schedule.dst_pair, after, search_budget)


def _every(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """Anchor plus a whole number of intervals, in whole microseconds, so that no rounding error adds up."""
    interval = timedelta(seconds=schedule.every_s or 0.0)
    anchor = schedule.anchor_at or EPOCH
    instant = anchor + ((after - anchor) // interval + 1) * interval
    while instant < _LAST:
        yield instant
        instant += interval
