"""Parses a cron expression: five fields, six (seconds first) or seven (a year last), names, ranges that may wrap around,
lists, steps, `H`, and Quartz's `L W # ?`. Every error is `Invalid` and names the field, the position and the fix. The length
of the text is limited, and so is the work."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from sexton.domain.fault import Invalid

from .cron import LAST_YEAR, Cron, Days
from .spread import pick

Dialect = Literal["cron", "quartz"]

TEXT_LIMIT = 256
_FIRST_YEAR = 1970
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PREFIX = re.compile(r"\s*(?:CRON_)?TZ=(\S+)\s+")
_HASHED = re.compile(r"(?:^|[\s,])[Hh](?:$|[\s,/(])")
_WILDCARD = re.compile(r"\*|H/|0{1,4}/")
_VALUE = r"[0-9]{1,4}|[A-Z]{3}"
_ITEM = re.compile(
    rf"(?:(?P<every>[*?])|(?P<hash>H)(?:\((?P<from>{_VALUE})-(?P<to>{_VALUE})\))?|(?P<low>{_VALUE})(?:-(?P<high>{_VALUE}))?)"
    r"(?:/(?P<step>[0-9]{1,4}))?"
)
_DAY_ITEM = re.compile(r"L(?:-(?P<before>[0-9]{1,2}))?|(?P<working>LW)|(?P<near>[0-9]{1,2})W")
_WEEKDAY_ITEM = re.compile(rf"(?P<day>{_VALUE})(?:#(?P<nth>[0-9])|(?P<last>L))|(?P<saturday>L)")


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: dict[str, int]
    hint: str
    wraps: bool = True
    hash_high: int | None = None  # the highest value of H without a range, so that it exists in every month


class _Part(NamedTuple):
    """One field of the expression, in capitals, and its position."""

    field: _Field
    text: str
    position: int

    def fault(self, item: str, message: str, offset: int = 0) -> Invalid:
        shown = item if len(item) <= 20 else f"{item[:20]}…"
        return Invalid("cron", f"{self.field.name} {shown!r} at position {self.position + offset}: {message}")


_SECOND = _Field("second", 0, 59, {}, "0-59")
_MINUTE = _Field("minute", 0, 59, {}, "0-59")
_HOUR = _Field("hour", 0, 23, {}, "0-23")
_DAY = _Field("day-of-month", 1, 31, {}, "1-31, L, L-3, LW or 15W", hash_high=28)
_MONTH = _Field("month", 1, 12, _MONTHS, "1-12 or JAN-DEC")
_WEEKDAY = _Field("day-of-week", 0, 6, _WEEKDAYS, "0-7 (0 and 7 are Sunday), MON-SUN, FRI#2 or FRIL")
_QUARTZ_WEEKDAY = _Field(
    "day-of-week", 1, 7, {name: number + 1 for name, number in _WEEKDAYS.items()}, "1-7 (1 is Sunday), SUN-SAT, 6#2 or 6L"
)
_YEAR = _Field("year", _FIRST_YEAR, LAST_YEAR, {}, f"{_FIRST_YEAR}-{LAST_YEAR}", wraps=False)


def split_zone(text: object) -> tuple[str | None, str]:
    """`CRON_TZ=Europe/Paris 0 9 * * *` is a zone and an expression."""
    if not isinstance(text, str):
        raise Invalid("cron", f'give a text such as "0 9 * * MON-FRI", not {type(text).__name__}')
    if len(text) > TEXT_LIMIT:
        raise Invalid("cron", f"has {len(text)} characters; the limit is {TEXT_LIMIT}")
    found = _PREFIX.match(text)
    return (found[1], text[found.end() :]) if found else (None, text)


def parse(text: str, *, dialect: Dialect | None = None, seed: str = "") -> Cron:
    """The rule; without a dialect as `cron`; `seed` decides the value of `H`."""
    is_hashed = ("H" in text or "h" in text) and _HASHED.search(text)
    return _parsed(text, dialect or "cron", seed if is_hashed else "")


@lru_cache(maxsize=4096)
def _parsed(text: str, dialect: Dialect, seed: str) -> Cron:
    parts = _parts(text, dialect)
    second, minute, hour, day, month, weekday, year = parts
    return Cron(
        seconds=_values(second, seed) if second else (0,),
        minutes=_values(minute, seed),
        hours=_values(hour, seed),
        days=_days(day, weekday, dialect, seed),
        months=_values(month, seed),
        years=_values(year, seed) if year and year.text != "*" else None,
        follows_clock=bool(_WILDCARD.match(minute.text) or _WILDCARD.match(hour.text)),
    )


def expanded(text: str) -> str:
    """The five fields of an alias; any other text unchanged."""
    word = text.strip().lower()
    if word in _ALIASES:
        return _ALIASES[word]
    if word.startswith("@every"):
        raise Invalid("cron", 'for a fixed interval give every, such as "5m", instead of cron')
    if word.startswith("@"):
        raise Invalid("cron", f"{word[:20]!r} is unknown; use one of {', '.join(_ALIASES)}")
    return text


def _parts(text: str, dialect: Dialect) -> tuple[_Part | None, _Part, _Part, _Part, _Part, _Part, _Part | None]:
    words = [(found[0].upper(), found.start() + 1) for found in re.finditer(r"\S+", expanded(text))]
    week = _QUARTZ_WEEKDAY if dialect == "quartz" else _WEEKDAY
    layout: tuple[_Field, ...] = (_MINUTE, _HOUR, _DAY, _MONTH, week)
    if len(words) not in (5, 6, 7):
        raise Invalid(
            "cron",
            f"has {len(words)} fields; write five (minute hour day-of-month month day-of-week), six (second first) "
            "or seven (year last)",
        )
    if dialect == "quartz" and len(words) == 5:
        raise Invalid("cron", "has five fields; the quartz dialect starts with the second, such as 0 0 9 ? * MON-FRI")
    if len(words) >= 6:
        layout = (_SECOND, *layout)
    if len(words) == 7:
        layout = (*layout, _YEAR)
    parts = {field.name: _Part(field, *word) for field, word in zip(layout, words, strict=True)}
    return (
        parts.get("second"),
        parts["minute"],
        parts["hour"],
        parts["day-of-month"],
        parts["month"],
        parts["day-of-week"],
        parts.get("year"),
    )


def _items(part: _Part) -> list[tuple[str, int]]:
    """The members of a list, each with its offset in the field."""
    items, offset = [], 0
    for item in part.text.split(","):
        if not item:
            raise part.fault(part.text, "is an empty item; remove the comma", offset)
        items.append((item, offset))
        offset += len(item) + 1
    return items


def _values(part: _Part, seed: str) -> tuple[int, ...]:
    found: set[int] = set()
    for item, offset in _items(part):
        found |= _item(part, item, offset, seed)
    return tuple(sorted(found))


def _item(part: _Part, item: str, offset: int, seed: str) -> set[int]:
    field = part.field
    match = _ITEM.fullmatch(item)
    if match is None:
        raise part.fault(item, f"is not valid; use {field.hint}, a range 1-5, a list 1,3 or a step */2", offset)
    if match["every"] == "?" and field.name not in ("day-of-month", "day-of-week"):
        raise part.fault(item, "? is allowed only for a day; use *", offset)
    size = field.high - field.low + 1
    step = int(match["step"] or 1)
    if not 1 <= step <= size:
        raise part.fault(item, f"a step must be 1 to {size} here" + _longer(field, step), offset)
    if match["hash"]:
        return _hashed(part, match, offset, seed, step)
    if match["every"]:
        low, high = field.low, field.high
    else:
        low = _number(part, match["low"], offset)
        high = _number(part, match["high"], offset) if match["high"] else field.high if match["step"] else low
    return set(_span(part, item, offset, low, high, step))


def _longer(field: _Field, step: int) -> str:
    if step == 0 or field.name not in ("second", "minute", "hour"):
        return ""
    return f'; for every {step} {field.name}s give every: "{step}{field.name[0]}"'


def _hashed(part: _Part, match: re.Match[str], offset: int, seed: str, step: int) -> set[int]:
    field = part.field
    low, high = field.low, field.hash_high or field.high
    if match["from"]:
        low, high = _number(part, match["from"], offset), _number(part, match["to"], offset)
        if low > high:
            raise part.fault(match[0], f"write the smaller value first: H({high}-{low})", offset)
    if not match["step"]:
        return {low + pick(seed, field.name, high - low + 1)}
    return set(range(low + pick(seed, field.name, min(step, high - low + 1)), high + 1, step))


def _number(part: _Part, word: str, offset: int) -> int:
    field = part.field
    number = field.names.get(word, -1) if word.isalpha() else int(word)
    if number == 7 and field is _WEEKDAY:
        return 7
    if not field.low <= number <= field.high:
        raise part.fault(word, f"use {field.hint}", offset)
    return number


def _span(part: _Part, item: str, offset: int, low: int, high: int, step: int) -> range | list[int]:
    field = part.field
    if field is _WEEKDAY:  # 7 is Sunday at either end: 5-7 and 7-2 are both ranges
        if high < 7:
            low %= 7
        if low <= high == 7:
            return [day % 7 for day in range(low, 8, step)]
    if low <= high:
        return range(low, high + 1, step)
    if not field.wraps:
        raise part.fault(item, f"write the smaller value first: {high}-{low}", offset)
    size = field.high - field.low + 1
    return [field.low + (low - field.low + passed) % size for passed in range(0, (high - low) % size + 1, step)]


def _days(day: _Part, weekday: _Part, dialect: Dialect, seed: str) -> Days:
    if dialect == "quartz" and (day.text == "?") == (weekday.text == "?"):
        raise Invalid("cron", "in the quartz dialect exactly one of day-of-month and day-of-week must be ?")
    plain, before_last, near, last_working = _month_days(day, seed)
    weekdays, nth, last = _week_days(weekday, dialect, seed)
    return Days(
        plain=frozenset(plain),
        before_last=frozenset(before_last),
        near=frozenset(near),
        last_working=last_working,
        weekdays=frozenset(weekdays),
        nth_weekdays=frozenset(nth),
        last_weekdays=frozenset(last),
        either=not day.text.startswith(("*", "?")) and not weekday.text.startswith(("*", "?")),
    )


def _month_days(part: _Part, seed: str) -> tuple[set[int], set[int], set[int], bool]:
    plain: set[int] = set()
    before_last: set[int] = set()
    near: set[int] = set()
    last_working = False
    for item, offset in _items(part):
        match = _DAY_ITEM.fullmatch(item)
        if match is None:
            plain |= _item(part, item, offset, seed)
        elif match["working"]:
            last_working = True
        elif match["near"]:
            near.add(_number(part, match["near"], offset))
        elif (before := int(match["before"] or 0)) <= 30:
            before_last.add(before)
        else:
            raise part.fault(item, "use L-1 to L-30", offset)
    return plain, before_last, near, last_working


def _week_days(part: _Part, dialect: Dialect, seed: str) -> tuple[set[int], set[tuple[int, int]], set[int]]:
    first = part.field.low  # 1 in Quartz, where Sunday is 1
    plain: set[int] = set()
    nth: set[tuple[int, int]] = set()
    last: set[int] = set()
    for item, offset in _items(part):
        match = _WEEKDAY_ITEM.fullmatch(item)
        if match is None:
            plain |= {(day - first) % 7 for day in _item(part, item, offset, seed)}
        elif match["saturday"]:
            if dialect != "quartz":
                raise part.fault(item, "L needs a weekday; write FRIL, or use L in day-of-month", offset)
            plain.add(6)
        elif match["last"]:
            last.add((_number(part, match["day"], offset) - first) % 7)
        elif 1 <= int(match["nth"]) <= 5:
            nth.add(((_number(part, match["day"], offset) - first) % 7, int(match["nth"])))
        else:
            raise part.fault(item, "use #1 to #5", offset)
    return plain, nth, last
