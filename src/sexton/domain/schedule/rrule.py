"""An RFC 5545 recurrence as sets of numbers, and the wall times it produces. Iteration goes month by month from any start, not
from DTSTART. Each search has a budget, so the search of a rule that can never fire ends; in python-dateutil it does not
(ADR 012). Does not handle time zones: `rrule_fires` turns wall times into instants, counts them, and adds those of RDATE."""

from __future__ import annotations

from bisect import bisect_left
from calendar import isleap, monthrange
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from itertools import groupby

import msgspec

from sexton.domain.fault import Invalid

from .cron import LAST_YEAR

COUNT_LIMIT = 10_000
_SEARCH_LIMIT = 20_000  # days or steps without a match before a rule counts as ended: 54 years of days, about 25 ms
_SET_LIMIT = 19_000  # occurrences in one period from which BYSETPOS picks: a search set_budget at two periods


class Freq(IntEnum):
    SECONDLY = 1
    MINUTELY = 60
    HOURLY = 3600
    DAILY = 86_400
    WEEKLY = 604_800
    MONTHLY = 2_000_000
    YEARLY = 3_000_000


class Budget:
    """How many steps without a match a search may still take. A match refills it, unless `total`: then the owner of the budget
    calls `refill`."""

    def __init__(self, limit: int = _SEARCH_LIMIT, *, total: bool = False) -> None:
        self._limit = self.left = limit
        self._total = total

    def hit(self) -> None:
        if not self._total:
            self.refill()

    def refill(self) -> None:
        self.left = self._limit

    @property
    def spent(self) -> int:
        return self._limit - self.left


class Recurrence(msgspec.Struct, frozen=True):
    """Weekdays count from Monday, 0, as in RFC 5545; what the text leaves out is filled in from `start`. Times in the zone of
    the schedule are wall times. Times in UTC are instants: in a repeated hour they name one of its two passes."""

    freq: Freq
    start: datetime  # as a wall time
    start_at: datetime | None = None  # if the start is an instant
    interval: int = 1
    count: int | None = None
    until: datetime | None = None  # a wall time, inclusive
    until_at: datetime | None = None  # an instant, inclusive
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    weeks: tuple[int, ...] = ()
    weekdays: tuple[tuple[int, int], ...] = ()  # (weekday, which of them), 0: all of them
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0
    extra: tuple[datetime, ...] = ()  # RDATE, as wall times
    extra_at: tuple[datetime, ...] = ()  # and as instants
    left_out: frozenset[datetime | date] = frozenset()  # EXDATE: dates, wall times, instants

    @property
    def follows_clock(self) -> bool:
        """Counts hours, minutes or seconds, so it fires whenever the wall clock shows one of its times."""
        return self.freq <= Freq.HOURLY

    def walls(self, start: datetime, budget: Budget | None = None) -> Iterator[datetime]:
        """The wall times of the rule from `start` on, which may be before its own start, up to `until`. Excluded days and wall
        times are left out; COUNT and the additional dates are the caller's."""
        skipped = frozenset[datetime | date]()
        if not self.positions or self.freq <= Freq.DAILY:  # otherwise an excluded day still counts as a position
            skipped = self.left_out
        for wall in self.unbounded(start, budget or Budget(), skipped):
            if self.until is not None and wall > self.until:
                return
            if wall not in self.left_out and wall.date() not in self.left_out:
                yield wall

    def unbounded(
        self, start: datetime, budget: Budget, skipped: frozenset[datetime | date] = frozenset()
    ) -> Iterator[datetime]:
        """The wall times of the rule from `start` on, whatever ends it."""
        found = self._picked(start, budget, skipped) if self.positions else self._every(start, budget, skipped)
        for wall in found:
            if wall >= start:
                budget.hit()
                yield wall

    def _picked(self, start: datetime, budget: Budget, skipped: frozenset[datetime | date]) -> Iterator[datetime]:
        """BYSETPOS: only some of each period's occurrences; the period that holds `start` is read from its beginning."""
        set_budget = Budget(total=True)  # from one occurrence to the next: a started period is read to its end
        for _, members in groupby(self._every(self._period_start(start), set_budget, skipped), self._period):
            if budget.left <= 0:
                return
            found = []
            for wall in members:
                found.append(wall)
                budget.left -= 1 + set_budget.spent
                set_budget.refill()
                if len(found) > _SET_LIMIT:
                    raise Invalid("rrule", f"BYSETPOS: more than {_SET_LIMIT:,} occurrences to choose from in one period")
            size = len(found)
            chosen = {place - 1 if place > 0 else size + place for place in self.positions}
            yield from (found[place] for place in sorted(chosen) if 0 <= place < size)
        budget.left -= set_budget.spent

    def _every(self, start: datetime, budget: Budget, skipped: frozenset[datetime | date]) -> Iterator[datetime]:
        first_day, first_time = start.date(), start.replace(microsecond=0)
        for day in self._dates(first_day, budget):
            if day in skipped:
                continue
            midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001
            yield from self._times(midnight, first_time if day == first_day else midnight, budget)
            if budget.left <= 0:
                return

    def _dates(self, start: date, budget: Budget) -> Iterator[date]:
        year, month = start.year, start.month
        while year <= LAST_YEAR and budget.left > 0:
            for day in self._days_of(year, month, budget):
                if (found := date(year, month, day)) >= start:
                    yield found
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)

    def _days_of(self, year: int, month: int, budget: Budget) -> list[int]:
        budget.left -= 1
        if self.months and month not in self.months:
            return []
        if self.freq == Freq.YEARLY and (year - self.start.year) % self.interval:
            return []
        if self.freq == Freq.MONTHLY and (12 * (year - self.start.year) + month - self.start.month) % self.interval:
            return []
        length = monthrange(year, month)[1]
        chosen: Sequence[int] = range(1, length + 1)
        if self.month_days:
            named = {day if day > 0 else length + 1 + day for day in self.month_days}
            chosen = sorted(day for day in named if 1 <= day <= length)
        budget.left -= len(chosen)
        first = date(year, month, 1).toordinal() - 1
        return [day for day in chosen if self._holds(first + day, year, day, length)]

    def _holds(self, ordinal: int, year: int, day: int, length: int) -> bool:
        return (
            self._in_step(ordinal)
            and (not self.weekdays or self._on_weekday(ordinal, year, day, length))
            and (not self.year_days or self._on_year_day(ordinal, year))
            and (not self.weeks or _week_of(ordinal, self.week_start) in _weeks(self.weeks, year, self.week_start))
        )

    def _in_step(self, ordinal: int) -> bool:
        if self.interval == 1 or self.freq > Freq.WEEKLY or self.freq < Freq.DAILY:
            return True
        begun = self.start.toordinal()
        if self.freq == Freq.DAILY:
            return (ordinal - begun) % self.interval == 0
        return (_week_of(ordinal, self.week_start) - _week_of(begun, self.week_start)) % self.interval == 0

    def _on_weekday(self, ordinal: int, year: int, day: int, length: int) -> bool:
        weekday = (ordinal - 1) % 7
        place, size = day, length
        if self.freq == Freq.YEARLY and not self.months:  # BYDAY=20MO counts through the year, unless months are named
            place, size = ordinal - date(year, 1, 1).toordinal() + 1, 365 + isleap(year)
        nth, nth_last = (place - 1) // 7 + 1, -((size - place) // 7 + 1)
        return any(weekday == wanted and which in (0, nth, nth_last) for wanted, which in self.weekdays)

    def _on_year_day(self, ordinal: int, year: int) -> bool:
        place = ordinal - date(year, 1, 1).toordinal() + 1
        return place in self.year_days or place - 366 - isleap(year) in self.year_days

    def _times(self, midnight: datetime, earliest: datetime, budget: Budget) -> Iterator[datetime]:
        from_second = (earliest - midnight).seconds
        stepped = self.interval > 1 and self.follows_clock
        for second in self._stepped(midnight, from_second, budget) if stepped else self._product(from_second):
            if second >= from_second:
                yield midnight + timedelta(seconds=second)

    def _product(self, earliest: int) -> Iterator[int]:
        """Seconds of the day, from about `earliest` on."""
        for hour in self.hours[bisect_left(self.hours, earliest // 3600) :]:
            minutes = self.minutes
            if hour == earliest // 3600:
                minutes = minutes[bisect_left(minutes, earliest // 60 % 60) :]
            for minute in minutes:
                for second in self.seconds:
                    yield 3600 * hour + 60 * minute + second

    def _stepped(self, midnight: datetime, earliest: int, budget: Budget) -> Iterator[int]:
        """Seconds of this day that are a whole number of intervals (hours, minutes or seconds) away from the start."""
        unit = int(self.freq)
        budget.left -= 1  # a day without an occurrence costs one step
        passed = self._period(midnight) - self._period(self.start)
        place = earliest // unit
        while True:
            place += -(passed + place) % self.interval
            begins = place * unit
            if begins >= 86_400 or budget.left <= 0:
                return
            budget.left -= 1
            if begins // 3600 not in self.hours:
                place = (begins // 3600 + 1) * 3600 // unit
            elif unit < 3600 and begins // 60 % 60 not in self.minutes:
                place = (begins // 60 + 1) * 60 // unit
            else:
                yield from self._within(begins)
                place += 1

    def _within(self, begins: int) -> Iterator[int]:
        """The seconds of the day inside one hour, minute or second."""
        match self.freq:
            case Freq.HOURLY:
                for minute in self.minutes:
                    for second in self.seconds:
                        yield begins + 60 * minute + second
            case Freq.MINUTELY:
                for second in self.seconds:
                    yield begins + second
            case _:
                if begins % 60 in self.seconds:
                    yield begins

    def _period(self, wall: datetime) -> int:
        """The number of the year, month, week, day, hour, minute or second that BYSETPOS and INTERVAL count by."""
        match self.freq:
            case Freq.YEARLY:
                return wall.year
            case Freq.MONTHLY:
                return 12 * wall.year + wall.month
            case Freq.WEEKLY:
                return _week_of(wall.toordinal(), self.week_start)
            case _:
                return (86_400 * wall.toordinal() + 3600 * wall.hour + 60 * wall.minute + wall.second) // int(self.freq)

    def _period_start(self, wall: datetime) -> datetime:
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        match self.freq:
            case Freq.YEARLY:
                return midnight.replace(month=1, day=1)
            case Freq.MONTHLY:
                return midnight.replace(day=1)
            case Freq.WEEKLY:
                return midnight - timedelta(days=(wall.weekday() - self.week_start) % 7)
            case _:
                return midnight


def _week_of(ordinal: int, week_start: int) -> int:
    return (ordinal - 1 - week_start) // 7


@lru_cache(maxsize=1024)
def _weeks(weeks: tuple[int, ...], year: int, week_start: int) -> frozenset[int]:
    """The weeks with these numbers that have days in this year. Week 1 is the first week with at least four days in its year.
    It may start in the previous year, and a year may end in week 1 of the next year."""
    found = set()
    for owner in (year - 1, year, year + 1):
        first = _week_of(date(owner, 1, 4).toordinal(), week_start)
        size = _week_of(date(owner + 1, 1, 4).toordinal(), week_start) - first
        numbers = (number if number > 0 else size + 1 + number for number in weeks)
        found |= {first + number - 1 for number in numbers if 1 <= number <= size}
    return frozenset(found)
