"""A cron rule as sets of numbers, and the wall times it produces. Iteration jumps from one matching unit to the next and
ends with `LAST_YEAR`; it never goes minute by minute. Does not handle time zones: `zone` turns wall times into instants."""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

import msgspec

# Any combination of day, month and weekday repeats within 40 years, so a longer search finds nothing new.
LAST_YEAR = 2150


class Days(msgspec.Struct, frozen=True):
    """Which days of a month. Weekdays count from Sunday, 0."""

    plain: frozenset[int] = frozenset()
    before_last: frozenset[int] = frozenset()  # L is 0, L-3 is 3
    near: frozenset[int] = frozenset()  # 15W: the working day nearest to the 15th, in the same month
    last_working: bool = False  # LW
    weekdays: frozenset[int] = frozenset()
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()  # FRI#2
    last_weekdays: frozenset[int] = frozenset()  # FRIL
    either: bool = False  # both fields are restricted: a day that matches one of them is enough

    def of(self, year: int, month: int) -> tuple[int, ...]:
        monday_first, length = monthrange(year, month)
        return _days(self, (monday_first + 1) % 7, length)


class Cron(msgspec.Struct, frozen=True):
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: Days
    months: tuple[int, ...]
    years: tuple[int, ...] | None  # null: every year
    follows_clock: bool  # its minute or hour field starts with a wildcard

    def walls(self, start: datetime) -> Iterator[datetime]:
        """Every matching wall time from `start` on, increasing."""
        if start.microsecond:
            start = start.replace(microsecond=0)
            skip: datetime | None = start
        else:
            skip = None
        for wall in self._from(start):
            if wall != skip:
                yield wall

    def _from(self, start: datetime) -> Iterator[datetime]:
        today = (start.year, start.month, start.day)
        for year, month, day in self._dates(*today):
            if (year, month, day) == today:
                yield from self._rest_of_day(start)
                continue
            for hour in self.hours:
                for minute in self.minutes:
                    for second in self.seconds:
                        yield datetime(year, month, day, hour, minute, second)  # noqa: DTZ001

    def _rest_of_day(self, start: datetime) -> Iterator[datetime]:
        day = start.replace(hour=0, minute=0, second=0)
        for hour in self.hours[bisect_left(self.hours, start.hour) :]:
            minutes = self.minutes
            if hour == start.hour:
                minutes = minutes[bisect_left(minutes, start.minute) :]
            for minute in minutes:
                seconds = self.seconds
                if hour == start.hour and minute == start.minute:
                    seconds = seconds[bisect_left(seconds, start.second) :]
                for second in seconds:
                    yield day.replace(hour=hour, minute=minute, second=second)

    def _dates(self, year: int, month: int, day: int) -> Iterator[tuple[int, int, int]]:
        years = range(year, LAST_YEAR + 1) if self.years is None else self.years[bisect_left(self.years, year) :]
        for a_year in years:
            for a_month in self.months:
                if a_year == year and a_month < month:
                    continue
                days = self.days.of(a_year, a_month)
                if a_year == year and a_month == month:
                    days = days[bisect_left(days, day) :]
                for a_day in days:
                    yield a_year, a_month, a_day


@lru_cache(maxsize=4096)
def _days(days: Days, first_weekday: int, length: int) -> tuple[int, ...]:
    """A month is determined by the weekday of its first day and by its length: 28 cases in total."""
    by_date = set(days.plain)
    by_date |= {length - before for before in days.before_last}
    by_date |= {_working(day, first_weekday, length) for day in days.near if day <= length}
    if days.last_working:
        by_date.add(_working(length, first_weekday, length))
    by_weekday = {day for day in range(1, length + 1) if (first_weekday + day - 1) % 7 in days.weekdays}
    for weekday, nth in days.nth_weekdays:
        by_weekday.add(1 + (weekday - first_weekday) % 7 + 7 * (nth - 1))
    for weekday in days.last_weekdays:
        by_weekday.add(length - (first_weekday + length - 1 - weekday) % 7)
    matching = by_date | by_weekday if days.either else by_date & by_weekday
    return tuple(sorted(day for day in matching if 1 <= day <= length))


def _working(day: int, first_weekday: int, length: int) -> int:
    match (first_weekday + day - 1) % 7:
        case 6:
            return day - 1 if day > 1 else day + 2
        case 0:
            return day + 1 if day < length else day - 2
        case _:
            return day
