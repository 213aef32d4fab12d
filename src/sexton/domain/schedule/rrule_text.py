"""Parses an RFC 5545 recurrence: `RRULE`, `DTSTART`, `EXDATE` and `RDATE` lines, or only `FREQ=…`. Every error is `Invalid`
and names the part and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from sexton.domain.fault import Invalid

from .rrule import COUNT_LIMIT, Freq, Recurrence
from .zone import wall_of, zone

TEXT_LIMIT = 8192
DATES_LIMIT = 500
_INTERVAL_LIMIT = 10_000_000

_TZID = re.compile(r"TZID=([^:;]+):")
_LINE = re.compile(r"(?P<name>RRULE|DTSTART|EXDATE|RDATE)(?P<parameters>(?:;[A-Z]+=[^:;]+)*):(?P<value>.+)", re.IGNORECASE)
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z)?)?", re.IGNORECASE | re.ASCII)
_WEEKDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_NUMBERS = {  # part: lowest, highest, may be negative
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
    "BYSETPOS": (1, 366, True),
}
_KNOWN = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)


class Lines(NamedTuple):
    """A recurrence, split into lines but not yet parsed."""

    rule: str
    zone: str | None
    start: str | None
    extra: tuple[str, ...]
    left_out: tuple[str, ...]


class _Moment(NamedTuple):
    wall: datetime  # in UTC, if it is an instant
    is_date: bool
    is_utc: bool

    @property
    def instant(self) -> datetime:
        return self.wall.replace(tzinfo=UTC)


def split(text: object) -> Lines:
    """The lines of a recurrence and its zone: a `TZID`, or UTC for a `DTSTART` that ends in Z."""
    if not isinstance(text, str):
        raise Invalid("rrule", f'give a text such as "FREQ=DAILY;BYHOUR=9", not {type(text).__name__}')
    if len(text) > TEXT_LIMIT:
        raise Invalid("rrule", f"has {len(text)} characters; the limit is {TEXT_LIMIT}")
    values, zones = _gathered(text.strip())
    if len(values["RRULE"]) != 1 or len(values["DTSTART"]) > 1:
        raise Invalid("rrule", "give one RRULE and at most one DTSTART")
    if len(zones) > 1:
        raise Invalid("rrule", f"names several time zones ({', '.join(sorted(zones)[:3])}); use one")
    if len(values["RDATE"]) + len(values["EXDATE"]) > DATES_LIMIT:
        raise Invalid("rrule", f"has more than {DATES_LIMIT} dates in RDATE and EXDATE")
    return Lines(
        rule=values["RRULE"][0],
        zone=zones.pop() if zones else None,
        start=values["DTSTART"][0] if values["DTSTART"] else None,
        extra=tuple(values["RDATE"]),
        left_out=tuple(values["EXDATE"]),
    )


def _gathered(text: str) -> tuple[dict[str, list[str]], set[str]]:
    """The values of each kind of line, and the zones in them."""
    zones: set[str] = set()
    if prefix := _TZID.match(text):
        zones.add(prefix[1])
        text = text[prefix.end() :]
    values: dict[str, list[str]] = {"RRULE": [], "DTSTART": [], "RDATE": [], "EXDATE": []}
    for line in text.split():
        name, parameters, value = _cut(line)
        if name in ("RDATE", "EXDATE"):
            values[name] += value.split(",")
        else:
            values[name].append(value)
        if "TZID" in parameters:
            zones.add(parameters["TZID"])
        elif name == "DTSTART" and value.upper().endswith("Z"):
            zones.add("UTC")
    return values, zones


def _cut(line: str) -> tuple[str, Mapping[str, str], str]:
    if "=" in line and ":" not in line:
        return "RRULE", {}, line
    match = _LINE.fullmatch(line)
    if match is None:
        raise Invalid("rrule", f"{line[:30]!r} is not a known line; use RRULE:, DTSTART:, EXDATE: and RDATE: lines")
    pairs = (parameter.partition("=") for parameter in match["parameters"].split(";")[1:])
    return match["name"].upper(), {key.upper(): value for key, _, value in pairs}, match["value"]


@lru_cache(maxsize=1024)
def parse(text: str, *, timezone: str, anchor_at: datetime) -> Recurrence:
    """The recurrence in the wall time of its zone. Without a `DTSTART` it starts at the anchor."""
    lines = split(text)
    parts = _parts(lines.rule)
    freq = _freq(parts)
    start, start_at = _start(lines.start, timezone, anchor_at)
    if "COUNT" in parts and "UNTIL" in parts:
        raise Invalid("rrule", "UNTIL: give COUNT or UNTIL, not both")
    numbers = {part: _numbers(part, parts[part]) for part in _NUMBERS if part in parts}
    weekdays = _weekdays(parts.get("BYDAY"))
    _check_table(freq, numbers, weekdays)
    months, month_days, weekdays = _dates_of(freq, start, numbers, weekdays)
    hours, minutes, of_minute = _times_of(freq, start, numbers)
    until, until_at = _until(parts.get("UNTIL"))
    extra = [_moment("RDATE", value) for value in lines.extra]
    return Recurrence(
        freq=freq,
        start=start,
        start_at=start_at,
        interval=_whole("INTERVAL", parts.get("INTERVAL", "1"), _INTERVAL_LIMIT),
        count=_whole("COUNT", parts["COUNT"], COUNT_LIMIT) if "COUNT" in parts else None,
        until=until,
        until_at=until_at,
        year_days=numbers.get("BYYEARDAY", ()),
        weeks=numbers.get("BYWEEKNO", ()),
        positions=numbers.get("BYSETPOS", ()),
        week_start=_weekday_number("WKST", parts.get("WKST", "MO")),
        extra=tuple(sorted({one.wall for one in extra if not one.is_utc})),
        extra_at=tuple(sorted({one.instant for one in extra if one.is_utc})),
        left_out=frozenset(_left_out(value) for value in lines.left_out),
        months=months,
        month_days=month_days,
        weekdays=weekdays,
        hours=hours,
        minutes=minutes,
        seconds=of_minute,
    )


def completed(text: str, *, minute: int = 0, second: int = 0) -> str:
    """The text with what it leaves open. Without a DTSTART, a rule that names an hour means the full hour, and one that names a
    minute the full minute: not the minute and second at which it happened to be submitted. The stored text says so, and every
    version reads it in the same way."""
    lines = split(text)
    parts = _parts(lines.rule)
    freq = _freq(parts)
    missing = ""
    if lines.start is None and "BYHOUR" in parts and "BYMINUTE" not in parts and freq > Freq.MINUTELY:
        missing += f";BYMINUTE={minute}"
    if lines.start is None and ("BYHOUR" in parts or "BYMINUTE" in parts) and "BYSECOND" not in parts and freq > Freq.SECONDLY:
        missing += f";BYSECOND={second}"
    return text.replace(lines.rule, lines.rule.rstrip(";") + missing, 1) if missing else text


def default_start(now: datetime) -> datetime:
    """The start of a recurrence without DTSTART: the next whole second, so that its first occurrence is not lost."""
    return now.replace(microsecond=0) + timedelta(seconds=1)


def _parts(rule: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for pair in rule.upper().strip(";").split(";"):
        name, _, value = pair.partition("=")
        if name not in _KNOWN:
            raise Invalid("rrule", f"{name[:20]!r} is not a part of a rule; use {', '.join(_KNOWN)}")
        if name in parts:
            raise Invalid("rrule", f"{name}: given twice")
        if not value:
            raise Invalid("rrule", f"{name}: has no value")
        parts[name] = value
    return parts


def _freq(parts: Mapping[str, str]) -> Freq:
    try:
        return Freq[parts["FREQ"]]
    except KeyError:
        raise Invalid("rrule", f"FREQ: use one of {', '.join(reversed(Freq.__members__))}") from None


def _whole(part: str, value: str, limit: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and 1 <= int(value) <= limit):
        fix = "; for more, use UNTIL, or max_fires next to the rrule" if part == "COUNT" else ""
        raise Invalid("rrule", f"{part}: {value[:20]!r} must be a number from 1 to {limit:,}{fix}")
    return int(value)


def _numbers(part: str, value: str) -> tuple[int, ...]:
    low, high, may_be_negative = _NUMBERS[part]
    found = set()
    for word in value.split(","):
        digits = word.removeprefix("+")
        if may_be_negative:
            digits = digits.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and low <= int(digits) <= high):
            reach = f"{low} to {high}" + (f" or -{high} to -{low}" if may_be_negative else "")
            raise Invalid("rrule", f"{part}: {word[:20]!r} must be in {reach}")
        found.add(-int(digits) if word.startswith("-") else int(digits))
    return tuple(sorted(found))


def _weekdays(value: str | None) -> tuple[tuple[int, int], ...]:
    found = set()
    for word in value.split(",") if value else ():
        match = _WEEKDAY.fullmatch(word)
        if match is None or (match[1] and not 1 <= abs(int(match[1])) <= 53):
            raise Invalid("rrule", f"BYDAY: {word[:20]!r} is not a day; use MO, TU, WE, TH, FR, SA, SU, or 2MO, -1FR")
        found.add((_WEEKDAYS.index(match[2]), int(match[1] or 0)))
    return tuple(sorted(found))


def _weekday_number(part: str, value: str) -> int:
    if value not in _WEEKDAYS:
        raise Invalid("rrule", f"{part}: {value[:20]!r} is not a day; use {', '.join(_WEEKDAYS)}")
    return _WEEKDAYS.index(value)


def _check_table(freq: Freq, numbers: Mapping[str, tuple[int, ...]], weekdays: tuple[tuple[int, int], ...]) -> None:
    """What RFC 5545 forbids (page 44)."""
    if any(which for _, which in weekdays) and (freq < Freq.MONTHLY or "BYWEEKNO" in numbers):
        raise Invalid("rrule", "BYDAY: a number before the day is allowed only with FREQ=MONTHLY or YEARLY, without BYWEEKNO")
    if "BYWEEKNO" in numbers and freq != Freq.YEARLY:
        raise Invalid("rrule", "BYWEEKNO: is allowed only with FREQ=YEARLY")
    if "BYYEARDAY" in numbers and freq in (Freq.DAILY, Freq.WEEKLY, Freq.MONTHLY):
        raise Invalid("rrule", "BYYEARDAY: is allowed only with FREQ=YEARLY, HOURLY, MINUTELY or SECONDLY")
    if "BYMONTHDAY" in numbers and freq == Freq.WEEKLY:
        raise Invalid("rrule", "BYMONTHDAY: is not allowed with FREQ=WEEKLY")
    if "BYSETPOS" in numbers and freq < Freq.DAILY:
        raise Invalid("rrule", "BYSETPOS: is allowed only with FREQ=DAILY, WEEKLY, MONTHLY or YEARLY")
    if "BYSETPOS" in numbers and not weekdays and len(numbers) == 1:
        raise Invalid("rrule", "BYSETPOS: needs another BY part to choose from")


def _dates_of(
    freq: Freq, start: datetime, numbers: Mapping[str, tuple[int, ...]], weekdays: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Months, days and weekdays. If the text has no day, the day of the start."""
    months, month_days = numbers.get("BYMONTH", ()), numbers.get("BYMONTHDAY", ())
    if not (month_days or weekdays or "BYYEARDAY" in numbers or "BYWEEKNO" in numbers):
        match freq:
            case Freq.YEARLY:
                months, month_days = months or (start.month,), (start.day,)
            case Freq.MONTHLY:
                month_days = (start.day,)
            case Freq.WEEKLY:
                weekdays = ((start.weekday(), 0),)
            case _:
                pass
    elif "BYWEEKNO" in numbers and not (weekdays or month_days or "BYYEARDAY" in numbers):
        weekdays = ((start.weekday(), 0),)
    return months, month_days, weekdays


def _times_of(
    freq: Freq, start: datetime, numbers: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Hours, minutes and seconds. If the text has none: all values of a unit that the frequency counts, else the start's."""

    def chosen(part: str, size: int, of_start: int, unit: Freq) -> tuple[int, ...]:
        return numbers.get(part) or (tuple(range(size)) if freq <= unit else (of_start,))

    return (
        chosen("BYHOUR", 24, start.hour, Freq.HOURLY),
        chosen("BYMINUTE", 60, start.minute, Freq.MINUTELY),
        chosen("BYSECOND", 60, start.second, Freq.SECONDLY),
    )


def _moment(part: str, value: str) -> _Moment:
    match = _MOMENT.fullmatch(value)
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(number or 0) for number in match.groups()[:6])
        wall = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError:
        raise Invalid("rrule", f"{part}: {value[:20]!r} is not a time; write 20260131T090000, with a Z for UTC") from None
    if not 1900 <= wall.year <= 2200:
        raise Invalid("rrule", f"{part}: {value[:20]!r} must be between 1900 and 2200")
    return _Moment(wall, is_date=match[4] is None, is_utc=bool(match[7]))


def _start(value: str | None, timezone: str, anchor_at: datetime) -> tuple[datetime, datetime | None]:
    """The start as a wall time, and as an instant if it is one: the anchor always is."""
    if value is None:
        return wall_of(zone(timezone), anchor_at), anchor_at
    moment = _moment("DTSTART", value)
    return (wall_of(zone(timezone), moment.instant), moment.instant) if moment.is_utc else (moment.wall, None)


def _until(value: str | None) -> tuple[datetime | None, datetime | None]:
    """As a wall time, or as an instant."""
    if value is None:
        return None, None
    moment = _moment("UNTIL", value)
    if moment.is_date:  # the whole of that day
        return moment.wall + timedelta(hours=23, minutes=59, seconds=59), None
    return (None, moment.instant) if moment.is_utc else (moment.wall, None)


def _left_out(value: str) -> datetime | date:
    moment = _moment("EXDATE", value)
    if moment.is_date:
        return moment.wall.date()
    return moment.instant if moment.is_utc else moment.wall
