"""Cron lines that other programs read differently. A line that is certainly from elsewhere is refused with a hint, and one
with a known second reading is accepted with a warning that shows both. Five plain fields have no mark of their origin."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from typing import Literal, NamedTuple, get_args

import msgspec

from sexton.domain.fault import Invalid

from . import cron_text
from .cron import Cron, Days
from .cron_text import Dialect
from .fires import unlimited_fires
from .rule import Schedule
from .words import describe

# What a caller may name. `strict` is `cron`, and refuses every line that another program reads differently.
NamedDialect = Literal[Dialect, "strict"]

_CALL = re.compile(r"\s*(?P<name>cron|rate|at)\s*\((?P<inside>[^)]*).*", re.IGNORECASE | re.DOTALL)
_NUMERIC_DAY = re.compile(r"(?:^|[,-])[0-9]")
_NUMBER = re.compile(r"(?<![0-9A-Z#/])[1-7](?![0-9])", re.IGNORECASE)  # of a weekday, not after # or a step
_FROM_SUNDAY = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIRES_SHOWN = 2
_RULE_LENGTH = 200  # of a suggested rule; a longer one explains nothing


class Reading(NamedTuple):
    """How another program reads a line, and how to write that here."""

    order: str  # of the fields
    program: str
    text: str


def refuse(text: str, dialect: str | None) -> None:
    """`Invalid` if the line is certainly from elsewhere; with `strict` also if it may be."""
    if found := _CALL.fullmatch(text):
        raise Invalid("cron", _hint(found["name"].lower(), found["inside"].split()))
    if dialect in get_args(Dialect):
        return
    words = text.split()
    if len(words) in (6, 7):
        _refuse_aws(words)
    if len(words) in (5, 6, 7):
        day = len(words[:6]) - 3
        _refuse_quartz(words[day], words[day + 2], has_seconds=len(words) > 5)
    if dialect == "strict" and (others := readings(text)):
        elsewhere = "; ".join(f"{other.program} reads {other.order}, which is {other.text!r} here" for other in others)
        raise Invalid(
            "cron", f"is read with the seconds first here; {elsewhere}. Write that, or name dialect cron to keep the line"
        )
    if dialect == "strict" and (days := either_day(text)) is not None:
        raise Invalid(
            "cron", f"fires on days that match either day field here; {_elsewhere(days)}, or name dialect cron to keep it"
        )


def is_refused(text: str) -> bool:
    """Whether the line needs a dialect. An older version may have accepted it without one."""
    try:
        refuse(text, None)
    except Invalid:
        return True
    return False


def warnings(schedule: Schedule, *, after: datetime, seed: str = "") -> list[str]:
    """One warning for each other reading of a line whose dialect is not named, with the next fires of both."""
    if schedule.cron is None or schedule.dialect is not None:
        return []
    others, days = readings(schedule.cron, seed), either_day(schedule.cron, seed)
    if not others and days is None:
        return []
    own = _shown(schedule, after, seed)
    found = [
        f"cron {schedule.cron.strip()!r} is read with the seconds first: {own}. {other.program} reads {other.order}: "
        f"{_shown(msgspec.structs.replace(schedule, cron=other.text), after, seed)}. If you mean that, write {other.text!r}. "
        "Name the dialect (cron) to confirm what you write"
        for other in others
    ]
    if days is None:
        return found
    both = "" if days.rule is None else f" {_next(_by_rule(schedule, days.rule, after), after, seed)}"
    found.append(
        f"cron {schedule.cron.strip()!r} fires on days that match either day field: {own}. {_elsewhere(days, both)}. "
        "Name the dialect (cron) to confirm what you write"
    )
    return found


def readings(text: str, seed: str = "") -> list[Reading]:
    """Other meanings of a line with six or seven fields, in programs that accept it."""
    words = text.split()
    found: list[Reading] = []
    if len(words) == 6:
        *five, last = words
        found.append(Reading("the seconds last", "croniter", " ".join([last, *five])))
        found.append(Reading("the year last", "Temporal", " ".join(["0", *five, last])))
    elif len(words) == 7:
        *five, second, year = words
        found.append(Reading("the seconds before the year", "croniter", " ".join([second, *five, year])))
    if not found:
        return []
    own = _parsed(text, seed)
    others = [(one, meaning) for one in found if (meaning := _parsed(one.text, seed)) is not None]
    return [one for one, meaning in others if own is not None and meaning != own]


class EitherDay(NamedTuple):
    """A line with six fields that restricts both days: here a day that matches either is enough, as in Vixie cron."""

    rule: str | None  # the days that match both, as a recurrence rule; none: they cannot be written as a short one


def either_day(text: str, seed: str = "") -> EitherDay | None:
    """Only of six fields: Spring has no others. With five, most programs read the line as it is read here."""
    words = text.split()
    if len(words) != 6 or any(day.startswith(("*", "?")) for day in (words[3], words[5])):
        return None
    own = _parsed(text, seed)
    return None if own is None or not own.days.either else EitherDay(None if "H" in text.upper() else _both_days(own))


def _both_days(own: Cron) -> str | None:
    days = own.days
    if days != Days(plain=days.plain, weekdays=days.weekdays, either=True) or own.follows_clock:
        return None
    parts = {
        "BYMONTH": own.months if len(own.months) < 12 else (),
        "BYMONTHDAY": sorted(days.plain),
        "BYDAY": [_FROM_SUNDAY[day][:2] for day in sorted(days.weekdays)],
        "BYHOUR": own.hours,
        "BYMINUTE": own.minutes,
        "BYSECOND": own.seconds,
    }
    named = [f"{part}={','.join(map(str, values))}" for part, values in parts.items() if values]
    rule = ";".join(["FREQ=MONTHLY", *named])
    return rule if len(rule) <= _RULE_LENGTH else None


def _by_rule(schedule: Schedule, rule: str, after: datetime) -> Schedule:
    return msgspec.structs.replace(schedule, cron=None, rrule=rule, anchor_at=after)


def _elsewhere(days: EitherDay, both: str = "") -> str:
    write = "write an rrule" if days.rule is None else f"write rrule {days.rule!r}"
    return f"Spring fires only on days that match both{both}, and Quartz refuses the line. If you mean both, {write}"


def _parsed(text: str, seed: str) -> Cron | None:
    try:
        return cron_text.parse(text, seed=seed)
    except Invalid:
        return None


def _shown(schedule: Schedule, after: datetime, seed: str) -> str:
    bare = Schedule(cron=schedule.cron, timezone=schedule.timezone)
    return f"{describe(bare, seed)} {_next(schedule, after, seed)}"


def _next(schedule: Schedule, after: datetime, seed: str) -> str:
    """Without exclusions, whose search costs more than a warning is worth."""
    schedule = msgspec.structs.replace(schedule, exclude=())
    times = [f"{at:%Y-%m-%d %H:%M:%S}Z" for at in islice(unlimited_fires(schedule, after=after, seed=seed), _FIRES_SHOWN)]
    return f"({'next ' + ', '.join(times) if times else 'never'})"


def _hint(name: str, words: list[str]) -> str:
    """AWS EventBridge writes its schedules as calls."""
    match name, words:
        case "rate", [count, unit] if count.isascii() and count.isdigit() and unit[:1].lower() in ("m", "h", "d"):
            return f'rate(…) is for AWS EventBridge; here give every: "{count}{unit[0].lower()}" instead of cron'
        case "rate", _:
            return 'rate(…) is for AWS EventBridge; here give every, such as "5m", instead of cron'
        case "at", _:
            return "at(…) is for AWS EventBridge; here give run_at instead of cron"
        case _, [*five, year] if len(five) == 5:
            return f"cron(…) is for AWS EventBridge, where the minute comes first and the year last; {_from_aws(five, year)}"
        case _:
            return "cron(…) is for AWS EventBridge; here give only the fields, such as 0 9 * * MON-FRI"


def _from_aws(five: list[str], year: str) -> str:
    *others, weekday = five
    weekday = _NUMBER.sub(lambda found: _FROM_SUNDAY[int(found[0]) - 1], weekday)  # they count from Sunday = 1 there
    five = [*others, weekday]
    return f"here write {' '.join(five if year == '*' else ['0', *five, year])[:60]}"


def _refuse_aws(words: list[str]) -> None:
    """`15 10 ? * MON-FRI *`: with six fields the question mark of AWS stands where the hour or the month is here."""
    if len(words) == 6 and "?" in (words[2], words[4]):
        raise Invalid("cron", f"this looks like AWS EventBridge, with the year last; {_from_aws(words[:5], words[5])}")


def _refuse_quartz(day: str, weekday: str, *, has_seconds: bool) -> None:
    """`0 0 12 ? * 2`: Monday in Quartz, Tuesday in cron. With five fields as well, without the seconds or the year."""
    if "?" in (day, weekday) and _NUMERIC_DAY.search(weekday):
        dialects = "quartz or cron" if has_seconds else "cron"
        raise Invalid(
            "cron",
            f"day-of-week {weekday[:20]!r} with ? is the form of Quartz and AWS, where 1 is Sunday; here 1 is Monday. Name the "
            f"dialect ({dialects}), or write the day by name, such as MON",
        )
