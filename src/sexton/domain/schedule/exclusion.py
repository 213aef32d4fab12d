"""When a schedule is told to be silent: a date or a daily window of its zone's wall time, or a stretch between two instants.
Answers with the end of the silence, so that nobody has to walk through it."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple, assert_never
from zoneinfo import ZoneInfo

from sexton.domain.fault import Invalid

from .rule import Window
from .zone import Dst, instants, wall_of

_TIME = r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?"
_DAILY = re.compile(rf"{_TIME}-(?:{_TIME}|(24:00(?::00)?))")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)


class Daily(NamedTuple):
    """From one time of day to another, which is not included; `22:00-06:00` goes through midnight."""

    begins: time
    ends: time


class Silence(NamedTuple):
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
        begins, ends = time(hour, minute, second), time(end[0], end[1], end[2])  # 24:00 is the midnight that follows
        if begins == ends:
            raise Invalid(field, f"{text!r} is empty or the whole day; pause the job instead")
        return Daily(begins, ends)
    raise Invalid(field, f'{text[:30]!r} is neither a date "2026-12-25" nor a daily window "22:00-06:00"')


@lru_cache(maxsize=1024)
def silence(entries: tuple[str | Window, ...]) -> Silence:
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
    return Silence(frozenset(dates), tuple(daily), tuple(windows))


def silent_until(silent: Silence, where: ZoneInfo, instant: datetime) -> datetime | None:
    """The first instant that the exclusions found here allow again; `None` if this one is allowed."""
    ends: list[datetime] = [window.to_at for window in silent.windows if window.from_at <= instant < window.to_at]
    if silent.dates or silent.daily:
        wall = wall_of(where, instant)
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        if wall.date() in silent.dates:
            ends.append(_instant(where, midnight + _DAY, instant))
        quiet = (_daily_end(window, midnight, wall.time()) for window in silent.daily)
        ends += [_instant(where, until, instant) for until in quiet if until is not None]
    return max(max(ends), instant + _TICK) if ends else None


def _daily_end(window: Daily, midnight: datetime, shown: time) -> datetime | None:
    end = datetime.combine(midnight, window.ends)
    if window.begins < window.ends:
        return end if window.begins <= shown < window.ends else None
    if shown >= window.begins:
        return end + _DAY
    return end if shown < window.ends else None


def _instant(where: ZoneInfo, wall: datetime, after: datetime) -> datetime:
    """In the hour that the clocks repeat, a silence has an end in each pass."""
    found = instants(where, wall, Dst(overlap="both"))
    return next((at for at in found if at > after), found[-1])
