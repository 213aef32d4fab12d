"""When a schedule must not fire: a date or a daily window in the wall time of its zone, or a range between two instants.
Returns the end of the exclusion, so that the caller can skip it in one step."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple, assert_never
from zoneinfo import ZoneInfo

from sexton.domain.fault import Invalid

from .rule import Window
from .zone import Dst, end_of_first_pass, instants, wall_of

_TIME = r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?"
_DAILY = re.compile(rf"{_TIME}-(?:{_TIME}|(24:00(?::00)?))")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)


class Daily(NamedTuple):
    """From one time of day to another, which is not included; `22:00-06:00` crosses midnight."""

    begins: time
    ends: time


class Exclusions(NamedTuple):
    dates: frozenset[date]
    daily: tuple[Daily, ...]
    windows: tuple[Window, ...]


def read(text: str, *, field: str) -> date | Daily:
    """`2026-12-25` or `22:00-06:00`."""
    if _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    elif match := _DAILY.fullmatch(text):
        hour, minute, second, *end = (int(number or 0) for number in match.groups()[:6])
        begins, ends = time(hour, minute, second), time(end[0], end[1], end[2])  # 24:00 is the next midnight
        if begins == ends:
            raise Invalid(field, f"{text!r} starts and ends at the same time; to exclude whole days, pause the job")
        return Daily(begins, ends)
    raise Invalid(field, f'{text[:30]!r} is neither a date "2026-12-25" nor a daily window "22:00-06:00"')


@lru_cache(maxsize=1024)
def exclusions(entries: tuple[str | Window, ...]) -> Exclusions:
    dates: set[date] = set()
    daily: list[Daily] = []
    windows: list[Window] = []
    for entry in entries:
        match entry:
            case Window():
                windows.append(entry)
            case str():
                match read(entry, field="exclude"):
                    case Daily() as window:
                        daily.append(window)
                    case date() as day:
                        dates.add(day)
            case _:
                assert_never(entry)
    return Exclusions(frozenset(dates), tuple(daily), tuple(windows))


def excluded_until(excluded: Exclusions, where: ZoneInfo, instant: datetime) -> datetime | None:
    """The end of the exclusions that hold at this instant; `None` if the instant is allowed."""
    ends: list[datetime] = [window.to_at for window in excluded.windows if window.from_at <= instant < window.to_at]
    if excluded.dates or excluded.daily:
        wall = wall_of(where, instant)
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        if wall.date() in excluded.dates:
            ends.append(_instant(where, midnight + _DAY, instant))
        excluded_until = (_daily_end(window, midnight, wall.time()) for window in excluded.daily)
        ends += [_instant(where, until, instant) for until in excluded_until if until is not None]
    return max(max(ends), instant + _TICK) if ends else None


def _daily_end(window: Daily, midnight: datetime, shown: time) -> datetime | None:
    end = datetime.combine(midnight, window.ends)
    if window.begins < window.ends:
        return end if window.begins <= shown < window.ends else None
    if shown >= window.begins:
        return end + _DAY
    return end if shown < window.ends else None


def _instant(where: ZoneInfo, wall: datetime, after: datetime) -> datetime:
    """In the hour that repeats when clocks go back, an exclusion has an end in each pass. One that begins within that hour ends
    with the first pass: the clock then shows times before its begin."""
    found = instants(where, wall, Dst(overlap="both"))
    end = next((at for at in found if at > after), found[-1])
    repeats_at = end_of_first_pass(where, after)
    return end if repeats_at is None else min(end, repeats_at)
