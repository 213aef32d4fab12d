"""Describes a schedule in words, for readers who do not know cron: what will happen, not how the rule was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from sexton.domain.wording import counted

from . import cron_text, rrule_text
from .cron import Cron, Days
from .fires import EPOCH
from .rrule import Freq, Recurrence
from .rule import Schedule, Window

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_UNITS = {Freq.SECONDLY: "second", Freq.MINUTELY: "minute", Freq.HOURLY: "hour", Freq.DAILY: "day"}
_PERIODS = {**_UNITS, Freq.WEEKLY: "week", Freq.MONTHLY: "month", Freq.YEARLY: "year"}
_TIMES_LISTED = 6


def describe(schedule: Schedule, seed: str = "") -> str:
    """Such as "At 09:00 on Monday to Friday, New York time; 30 s of jitter"."""
    if schedule.cron is not None:
        parts = f"{_cron(cron_text.parse(schedule.cron, dialect=schedule.dialect, seed=seed))}, {_place(schedule.timezone)}"
    elif schedule.rrule is not None:
        anchor = schedule.anchor_at or EPOCH
        rule = rrule_text.parse(schedule.rrule, timezone=schedule.timezone, anchor_at=anchor)
        parts = f"{_recurrence(rule)}, {_place(schedule.timezone)}"
    else:
        parts = f"Every {_span(schedule.every_s or 0)}, counted from {_moment(schedule.anchor_at or EPOCH)} UTC"
    return "; ".join([parts, *_limits(schedule)])


def _limits(schedule: Schedule) -> list[str]:
    parts = []
    if schedule.start_at is not None:
        parts.append(f"from {_moment(schedule.start_at)} UTC")
    if schedule.end_at is not None:
        parts.append(f"until {_moment(schedule.end_at)} UTC")
    if schedule.max_fires is not None:
        parts.append("once" if schedule.max_fires == 1 else f"at most {schedule.max_fires:,} times")
    if schedule.exclude:
        shown = [_exclusion(entry) for entry in schedule.exclude[:3]]
        more = len(schedule.exclude) - len(shown)
        parts.append(f"not on or in {_listed([*shown, f'{more} more']) if more else _listed(shown)}")
    if schedule.jitter is not None:
        parts.append(f"{_span(schedule.jitter.max_s)} of jitter" + (" either way" if schedule.jitter.both else ""))
    return parts


def _exclusion(entry: str | Window) -> str:
    return entry if isinstance(entry, str) else f"{_moment(entry.from_at)} to {_moment(entry.to_at)} UTC"


def _cron(cron: Cron) -> str:
    years = "" if cron.years is None else f" in {_runs(cron.years, str)}"
    return _times(cron.hours, cron.minutes, cron.seconds) + _on_days(cron.days) + _in_months(cron.months) + years


def _times(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    if len(hours) * len(minutes) * len(seconds) <= _TIMES_LISTED:
        shown = [_clock(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
        return f"At {_listed(shown)}"
    within = "" if len(hours) == 24 else f" {_hours(hours, minutes)}"
    if len(seconds) > 1:
        return _each(seconds, 60, "second") + ("" if len(minutes) == 60 else f" of {_minutes(minutes)}") + within
    at_second = f" at second {seconds[0]}" if seconds[0] else ""
    if len(minutes) > 1:
        return _each(minutes, 60, "minute") + at_second + within
    past = "" if minutes[0] == 0 else f" at {counted(minutes[0], 'minute')} past"
    return _every_hour(hours) + past + at_second


def _every_hour(hours: Sequence[int]) -> str:
    if len(hours) == 24:
        return "Every hour"
    if (step := _step(hours, 24)) is not None:
        return f"Every {step} hours" + (f" from {hours[0]:02}:00" if hours[0] else "")
    return f"In {_hour_runs(hours)}"


def _hours(hours: Sequence[int], minutes: Sequence[int]) -> str:
    if hours[-1] - hours[0] == len(hours) - 1 and len(hours) > 1:
        return f"from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
    return f"in {_hour_runs(hours)}"


def _hour_runs(hours: Sequence[int]) -> str:
    return ("hour " if len(hours) == 1 else "hours ") + _runs(hours, str)


def _minutes(minutes: Sequence[int]) -> str:
    return ("minute " if len(minutes) == 1 else "minutes ") + _runs(minutes, str)


def _each(values: Sequence[int], size: int, unit: str) -> str:
    if len(values) == size:
        return f"Every {unit}"
    if (step := _step(values, size)) is not None:
        return f"Every {step} {unit}s" + (f" from {unit} {values[0]}" if values[0] else "")
    return f"At {unit}s {_runs(values, str)}"


def _step(values: Sequence[int], size: int) -> int | None:
    """The constant step that also holds across the end of the range, if there is one."""
    steps = {later - earlier for earlier, later in pairwise(values)} | {values[0] + size - values[-1]}
    return steps.pop() if len(steps) == 1 and len(values) > 1 else None


def _on_days(days: Days) -> str:
    by_date, by_weekday = _month_days(days), _week_days(days)
    if by_date and by_weekday:
        return f" on {by_date}{' or on ' if days.either else ' if that is '}{by_weekday}"
    return f" on {by_date or by_weekday}" if by_date or by_weekday else ""


def _month_days(days: Days) -> str:
    if len(days.plain) == 31:
        return ""
    parts = [f"the {_runs(sorted(days.plain), _ordinal)}"] if days.plain else []
    parts += [f"the day {before} before the last" if before else "the last day" for before in sorted(days.before_last)]
    parts += [f"the working day nearest the {_ordinal(day)}" for day in sorted(days.near)]
    parts += ["the last working day"] * days.last_working
    return f"{_listed(parts)} of the month"


def _week_days(days: Days) -> str:
    if len(days.weekdays) == 7:
        return ""
    parts = [_weekdays(days.weekdays)] if days.weekdays else []
    parts += [f"the {_NTH[nth]} {_WEEKDAYS[day]} of the month" for day, nth in sorted(days.nth_weekdays)]
    parts += [f"the last {_WEEKDAYS[day]} of the month" for day in sorted(days.last_weekdays)]
    return _listed(parts)


def _weekdays(days: frozenset[int]) -> str:
    """Weeks start on Monday here, so that Saturday and Sunday stay together."""
    return _runs(sorted((day - 1) % 7 for day in days), lambda day: _WEEKDAYS[(day + 1) % 7])


def _in_months(months: Sequence[int]) -> str:
    return "" if len(months) == 12 else f" in {_runs(months, lambda month: _MONTHS[month - 1])}"


def _recurrence(rule: Recurrence) -> str:
    period = _PERIODS[rule.freq]
    parts = f"Every {period}" if rule.interval == 1 else f"Every {rule.interval:,} {period}s"
    weekdays = [_rule_weekday(day, which) for day, which in rule.weekdays]
    parts += f" on {_listed(weekdays)}" if weekdays else ""
    parts += f" on the {_listed([_ordinal(day) for day in rule.month_days])} of the month" if rule.month_days else ""
    parts += f" on day {_listed([str(day) for day in rule.year_days])} of the year" if rule.year_days else ""
    parts += f" in week {_listed([str(week) for week in rule.weeks])}" if rule.weeks else ""
    parts += _in_months(rule.months) if rule.months else ""
    if rule.freq >= Freq.DAILY:
        times = _times(rule.hours, rule.minutes, rule.seconds)
        parts += f" {times[0].lower()}{times[1:]}"
    else:
        parts += _within_days(rule)
    if rule.positions:
        parts += f", of these only number {_listed([str(place) for place in rule.positions])}"
    parts += f" from {_moment(rule.start)}"
    parts += f" until {_moment(rule.until)}" if rule.until else ""
    parts += f" until {_moment(rule.until_at)} UTC" if rule.until_at else ""
    if rule.count:
        parts += ", once" if rule.count == 1 else f", {rule.count:,} times"
    parts += f", and {len(rule.extra) + len(rule.extra_at)} more" if rule.extra or rule.extra_at else ""
    return parts + (f", except {len(rule.left_out)}" if rule.left_out else "")


def _within_days(rule: Recurrence) -> str:
    """What limits a rule that counts hours, minutes or seconds. A time of its start needs no words: the start is shown."""
    parts = "" if len(rule.hours) == 24 else f" in {_hour_runs(rule.hours)}"
    if len(rule.minutes) < 60 and (rule.freq < Freq.HOURLY or rule.minutes != (rule.start.minute,)):
        parts += f" at {_minutes(rule.minutes)}"
    if len(rule.seconds) < 60 and (rule.freq < Freq.MINUTELY or rule.seconds != (rule.start.second,)):
        parts += f" at second{'s' * (len(rule.seconds) > 1)} {_runs(rule.seconds, str)}"
    return parts


def _rule_weekday(day: int, which: int) -> str:
    name = _WEEKDAYS[(day + 1) % 7]
    if which == 0:
        return name
    return f"the {_ordinal(which)} {name}"


def _ordinal(number: int) -> str:
    if number < 0:
        return "last" if number == -1 else f"{_ordinal(-number)} to last"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _runs(values: Sequence[int], name: Callable[[int], str]) -> str:
    """1, 2, 3, 5 is "1 to 3 and 5"."""
    groups: list[list[int]] = []
    for value in values:
        if groups and value == groups[-1][-1] + 1:
            groups[-1].append(value)
        else:
            groups.append([value])
    parts: list[str] = []
    for group in groups:
        if len(group) > 2:
            parts.append(f"{name(group[0])} to {name(group[-1])}")
        else:
            parts += [name(value) for value in group]
    return _listed(parts)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _clock(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}" + (f":{at.second:02}" if at.second else "")


def _place(timezone: str) -> str:
    if timezone in ("UTC", "Etc/UTC", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT", "Universal", "Etc/Universal"):
        return "UTC"
    return f"{timezone.rpartition('/')[2].replace('_', ' ')} time"


def _span(span_s: float) -> str:
    span = timedelta(seconds=span_s)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if span_s >= size and span_s % size == 0:
            return f"{span // timedelta(seconds=size):,} {unit}"
    return f"{span_s:g} s"
