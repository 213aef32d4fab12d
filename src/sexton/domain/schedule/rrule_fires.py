"""The instants of a recurrence in a time zone. COUNT counts fires, so it is counted here and not in wall times; what a text
gives in UTC (`UNTIL`, `RDATE`, `EXDATE`) names one pass of a repeated hour."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache, partial
from heapq import merge
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sexton.domain.fault import Invalid

from .rrule import Budget, Recurrence
from .zone import FOLLOWS_CLOCK, Dst, instants, resolve, wall_of

_TICK = timedelta(microseconds=1)
_COUNT_BUDGET = 21_000  # steps; an older version had 20,000 and counted wall times, some of which do not fire


class _Bounds(NamedTuple):
    start_at: datetime  # the rule does not fire before it
    end_at: datetime | None  # nor after it
    is_empty: bool  # nor ever
    extra: tuple[datetime, ...]


def fires(
    rule: Recurrence, where: ZoneInfo, dst: Dst, after: datetime, search_budget: Budget | None = None
) -> Iterator[datetime]:
    """All instants strictly after `after`, increasing and distinct. `dst` applies to fixed times."""
    known = _bounds(rule, where, dst)
    extra = known.extra[bisect_right(known.extra, after) :]
    last = None
    for at in merge(_ruled(rule, where, dst, known, after, search_budget), extra):
        if at != last and at not in rule.left_out:
            last = at
            yield at


def _ruled(
    rule: Recurrence, where: ZoneInfo, dst: Dst, known: _Bounds, after: datetime, search_budget: Budget | None
) -> Iterator[datetime]:
    end_at = known.end_at
    if known.is_empty or (end_at is not None and after >= end_at):
        return iter(())
    walls = partial(rule.walls, budget=search_budget)
    begin = max(after, known.start_at - _TICK)
    zoned = FOLLOWS_CLOCK if rule.follows_clock else dst
    found = resolve(walls, where, zoned, begin, start=known.start_at, start_wall=_start_wall(rule))
    return found if end_at is None else takewhile(lambda at: at <= end_at, found)


@lru_cache(maxsize=1024)
def _bounds(rule: Recurrence, where: ZoneInfo, dst: Dst) -> _Bounds:
    """Computed once per process, so that a search may begin anywhere."""
    start_at = rule.start_at or _start_at(rule, where, dst)
    end_at = rule.until_at if rule.count is None else _last_counted(rule, where, dst, start_at)
    extra = {at for wall in rule.extra if not _is_left_out(rule, wall) for at in instants(where, wall, dst)}
    extra |= {at for at in rule.extra_at if not _is_left_out(rule, wall_of(where, at))}
    return _Bounds(start_at, end_at, rule.count is not None and end_at is None, tuple(sorted(extra)))


def _start_at(rule: Recurrence, where: ZoneInfo, dst: Dst) -> datetime:
    """A start in a gap is the end of the gap; a start in a repeated hour is in its first pass, unless fixed times fire in the
    last."""
    is_last = dst.overlap == "last" and not rule.follows_clock
    (start_at,) = instants(where, rule.start, Dst("after", "last" if is_last else "first"))
    return start_at


def _start_wall(rule: Recurrence) -> datetime | None:
    """The wall time of DTSTART. A rule without one begins at an instant."""
    return rule.start if rule.start_at is None else None


def _last_counted(rule: Recurrence, where: ZoneInfo, dst: Dst, start_at: datetime) -> datetime | None:
    """The last fire of COUNT. A fire that EXDATE removes counts (RFC 5545)."""
    budget = Budget(_COUNT_BUDGET, total=True)
    zoned = FOLLOWS_CLOCK if rule.follows_clock else dst
    walls = partial(rule.unbounded, budget=budget)
    found = resolve(walls, where, zoned, start_at - _TICK, start=start_at, start_wall=_start_wall(rule))
    last, counted = None, 0
    for counted, last in enumerate(islice(found, rule.count), 1):  # noqa: B007
        pass
    if counted != rule.count and budget.left <= 0:
        raise Invalid("rrule", "COUNT: takes too long to count; use UNTIL, or max_fires next to the rrule")
    return last


def _is_left_out(rule: Recurrence, wall: datetime) -> bool:
    return wall in rule.left_out or wall.date() in rule.left_out
