"""The expected fires, computed the slow way: it tests every minute of the window, forwards, without arithmetic on offsets. It
shares only the zone's data with the code under test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from sexton.domain.schedule.zone import names, zone

ZERO, MINUTE = timedelta(0), timedelta(minutes=1)
ALL = os.environ.get("SEXTON_TEST_ZONES") == "all"  # every change of every zone, without exception
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2037, 12, 31, tzinfo=UTC)


class Field(NamedTuple):
    text: str
    values: frozenset[int]


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in self)

    @property
    def is_spaced(self) -> bool:
        return self.minute.text[0] == "*" or self.hour.text[0] == "*"

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minute.values
            and wall.hour in self.hour.values
            and wall.month in self.month.values
            and self._on(wall.date())
        )

    def _on(self, day: date) -> bool:
        by_date, by_weekday = day.day in self.day.values, day.isoweekday() % 7 in self.weekday.values
        if self.day.text[0] == "*" or self.weekday.text[0] == "*":
            return by_date and by_weekday
        return by_date or by_weekday


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> Field:
    everything = range(low, high + 1)
    number = st.integers(low, high)
    match draw(st.sampled_from(["any", "step", "one", "range", "list", "wrapped"])):
        case "any":
            return Field("*", frozenset(everything))
        case "step":
            step = draw(st.integers(1, len(everything)))
            return Field(f"*/{step}", frozenset(everything[::step]))
        case "one":
            value = draw(number)
            return Field(str(value), frozenset({value}))
        case "range":
            first, last = sorted((draw(number), draw(number)))
            step = draw(st.integers(1, 5))
            return Field(f"{first}-{last}/{step}", frozenset(range(first, last + 1, step)))
        case "list":
            values = draw(st.lists(number, min_size=2, max_size=4))
            return Field(",".join(map(str, values)), frozenset(values))
        case _:
            last, first = sorted((draw(number), draw(number)))
            if first == last:
                return Field(str(first), frozenset({first}))
            return Field(f"{first}-{last}", frozenset(everything) - frozenset(range(last + 1, first)))


def expressions() -> st.SearchStrategy[Expression]:
    anything = Field("*", frozenset(range(32)))
    return st.builds(
        Expression,
        fields(0, 59),
        fields(0, 23),
        st.just(anything) | st.just(anything) | fields(1, 31),
        st.just(anything) | st.just(anything) | fields(1, 12),
        st.just(anything) | st.just(anything) | fields(0, 6),
    )


@cache
def changes(name: str) -> tuple[datetime, ...]:
    """Every instant from 2000 to 2037 at which the zone's offset changes."""
    where, found = zone(name), []
    step, at = timedelta(hours=12) if ALL else timedelta(days=5), FIRST
    while at < LAST:
        if at.astimezone(where).utcoffset() != (at + step).astimezone(where).utcoffset():
            early, late = at, at + step
            while late - early > MINUTE:
                middle = early + (late - early) // (2 * MINUTE) * MINUTE
                if middle == early:
                    middle = early + MINUTE
                if middle.astimezone(where).utcoffset() == early.astimezone(where).utcoffset():
                    early = middle
                else:
                    late = middle
            found.append(late)
        at += step
    return tuple(found)


@cache
def changing_zones() -> tuple[str, ...]:
    """One name for each set of changes: links to the same zone are left out."""
    kinds: dict[tuple[object, ...], str] = {}
    for name in sorted(names()):
        where = zone(name)
        if found := changes(name):
            kinds.setdefault((*found, *(at.astimezone(where).utcoffset() for at in found)), name)
    return tuple(kinds.values())


def expected(
    expression: Expression,
    where: ZoneInfo,
    after: datetime,
    until: datetime,
    gap: Literal["after", "skip"],
    overlap: Literal["first", "last", "both"],
) -> list[datetime]:
    """All fires in (after, until]. Both are whole minutes."""
    margin = timedelta(hours=1) + max(
        abs((at.astimezone(where).utcoffset() or ZERO) - (until.astimezone(where).utcoffset() or ZERO))
        for at in (after, after + (until - after) / 2)
    )
    shown: dict[datetime, list[datetime]] = {}
    order: list[tuple[datetime, datetime]] = []
    for at in _minutes(after - margin, until + margin):
        wall = at.astimezone(where).replace(tzinfo=None, fold=0)
        shown.setdefault(wall, []).append(at)
        order.append((at, wall))
    if expression.is_spaced:
        fires = {at for at, wall in order if expression.matches(wall)}
    else:
        fires = set()
        for wall in _minutes(order[0][1], order[-1][1]):
            if not expression.matches(wall):
                continue
            if wall not in shown:
                if gap == "after":
                    fires.add(next(at for at, later in order if later > wall))
            elif overlap == "first":
                fires.add(shown[wall][0])
            elif overlap == "last":
                fires.add(shown[wall][-1])
            else:
                fires.update(shown[wall])
    return sorted(at for at in fires if after < at <= until)


def _minutes(first: datetime, last: datetime) -> Iterator[datetime]:
    at = first
    while at <= last:
        yield at
        at += MINUTE
