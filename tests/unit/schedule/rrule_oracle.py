"""The expected fires of a recurrence, computed the slow way: it tests every minute of the window in UTC, with the zone's wall
time. It shares only the zone's data with the code under test. Rules fire on full minutes."""

# ruff: noqa: DTZ001 - wall times carry no zone

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Literal

from sexton.domain.schedule.zone import zone

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
AROUND = 36 * HOUR  # before and after a change
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
Freq = Literal["MINUTELY", "HOURLY", "DAILY", "WEEKLY"]
Moment = datetime | date  # a wall time, an instant or a whole day, as in RFC 5545


@dataclass(frozen=True)
class Rule:
    freq: Freq
    start: datetime  # naive: DTSTART in the zone; aware: the instant of the submission
    interval: int = 1
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    weekdays: tuple[int, ...] = ()
    count: int | None = None
    until: Moment | None = None
    extra: tuple[datetime, ...] = ()
    left_out: tuple[Moment, ...] = ()
    gap: Literal["after", "skip"] = "after"
    overlap: Literal["first", "last", "both"] = "first"

    @property
    def follows_clock(self) -> bool:
        return self.freq in ("MINUTELY", "HOURLY")

    @property
    def text(self) -> str:
        parts = [f"FREQ={self.freq}", f"INTERVAL={self.interval}"]
        parts += [f"BYHOUR={','.join(map(str, self.hours))}"] if self.hours else []
        parts += [f"BYMINUTE={','.join(map(str, self.minutes))}"] if self.minutes else []
        parts += [f"BYDAY={','.join(DAYS[day] for day in self.weekdays)}"] if self.weekdays else []
        parts += [f"COUNT={self.count}"] if self.count else []
        parts += [f"UNTIL={_written(self.until)}"] if self.until else []
        lines = [f"DTSTART:{_written(self.start)}"] if self.start.tzinfo is None else []
        lines += ["RRULE:" + ";".join(parts)]
        lines += [f"RDATE:{_written(one)}" for one in self.extra] + [f"EXDATE:{_written(one)}" for one in self.left_out]
        return "\n".join(lines)


@dataclass
class Window:
    """Every minute around a change: the instants at which each wall time occurs, and the wall times that a gap skips."""

    name: str
    change: datetime
    shown: dict[datetime, list[datetime]] = field(default_factory=dict)
    jumped: dict[datetime, datetime] = field(default_factory=dict)  # to the first instant after the gap

    def wall(self, at: datetime) -> datetime:
        return at.astimezone(zone(self.name)).replace(tzinfo=None, fold=0)


@lru_cache(maxsize=8)
def window(name: str, change: datetime) -> Window:
    made = Window(name, change)
    at, before = change - AROUND, None
    while at <= change + AROUND:
        wall = made.wall(at)
        made.shown.setdefault(wall, []).append(at)
        while before is not None and before + MINUTE < wall:
            before += MINUTE
            made.jumped[before] = at
        at, before = at + MINUTE, wall
    return made


def expected(rule: Rule, seen: Window) -> list[datetime]:
    """Every fire of the window, which contains the start."""
    begin = rule.start if rule.start.tzinfo is not None else _begin(rule, rule.start, seen)
    of_start = seen.wall(begin) if rule.start.tzinfo is not None else rule.start
    pairs = [
        (at, wall)
        for wall in (*seen.shown, *seen.jumped)
        if _matches(rule, wall, of_start) and not _is_before_start(rule, wall, seen)
        for at in _instants(rule, wall, seen, begin)
        if at >= begin
    ]
    if rule.count is not None:
        counted = set(sorted({at for at, _ in pairs})[: rule.count])
        pairs = [(at, wall) for at, wall in pairs if at in counted]
    if rule.until is not None:
        pairs = [(at, wall) for at, wall in pairs if _is_within(rule.until, at, wall)]
    fixed = replace(rule, freq="DAILY", start=of_start)
    for one in rule.extra:
        pairs += [(one, seen.wall(one))] if one.tzinfo is not None else [(at, one) for at in _instants(fixed, one, seen, FIRST)]
    silent = set(rule.left_out)
    return sorted({at for at, wall in pairs if not {at, wall, wall.date()} & silent})


def _is_before_start(rule: Rule, wall: datetime, seen: Window) -> bool:
    """A wall time that a gap skips, before DTSTART: it does not fire at the end of the gap, which is not before the start."""
    return rule.start.tzinfo is None and wall < rule.start and wall in seen.jumped


def _matches(rule: Rule, wall: datetime, start: datetime) -> bool:
    hours = rule.hours or (range(24) if rule.follows_clock else (start.hour,))
    minutes = rule.minutes or (range(60) if rule.freq == "MINUTELY" else (start.minute,))
    weekdays = rule.weekdays or ((start.weekday(),) if rule.freq == "WEEKLY" else range(7))
    passed = _period(rule.freq, wall) - _period(rule.freq, start)
    return wall.hour in hours and wall.minute in minutes and wall.weekday() in weekdays and passed % rule.interval == 0


def _period(freq: Freq, wall: datetime) -> int:
    match freq:
        case "MINUTELY":
            return (wall - datetime(2000, 1, 1)) // MINUTE
        case "HOURLY":
            return (wall - datetime(2000, 1, 1)) // HOUR
        case "DAILY":
            return (wall - datetime(2000, 1, 1)) // DAY
        case "WEEKLY":
            return (wall - datetime(2000, 1, 3)) // (7 * DAY)  # a Monday


def _instants(rule: Rule, wall: datetime, seen: Window, begin: datetime) -> list[datetime]:
    shown = seen.shown.get(wall, [])
    if rule.follows_clock:
        return shown
    if not shown:
        return [seen.jumped[wall]] if rule.gap == "after" and wall in seen.jumped else []
    if len(shown) == 1 or rule.overlap == "both":
        return shown
    if rule.overlap == "last":
        return shown[1:]
    # A rule that starts in the second pass has no first pass.
    is_second = rule.start.tzinfo is not None and begin in seen.shown[seen.wall(begin)][1:]
    return shown[1:] if is_second and shown[0] < begin <= shown[1] else shown[:1]


def _begin(rule: Rule, wall: datetime, seen: Window) -> datetime:
    shown = seen.shown.get(wall)
    if shown is None:
        return seen.jumped[wall]
    return shown[-1] if rule.overlap == "last" and not rule.follows_clock else shown[0]


def _is_within(until: Moment, at: datetime, wall: datetime) -> bool:
    if not isinstance(until, datetime):
        return wall.date() <= until
    return at <= until if until.tzinfo is not None else wall <= until


def drawn(seed: int, name: str, change: datetime) -> Rule:
    """Any rule that starts in the window, usually close to the change."""
    rng = Random(f"{seed} {name} {change}")
    freq: Freq = rng.choice(["MINUTELY", "HOURLY", "HOURLY", "DAILY", "DAILY", "WEEKLY"])
    seen = window(name, change)

    def near(minutes: int = 180) -> datetime:
        return change + rng.randint(-minutes, minutes) * MINUTE

    def moment() -> datetime:
        """A wall time, which may be in a gap or an overlap, or an instant."""
        if rng.random() < 0.5:
            return near()
        return rng.choice([seen.wall(near()), *rng.sample(sorted(seen.jumped), min(len(seen.jumped), 2))])

    def some(values: range, share: float) -> tuple[int, ...]:
        return tuple(sorted(rng.sample(values, rng.randint(1, 3)))) if rng.random() < share else ()

    start = rng.choice([near(), near(1500), moment(), seen.wall(change)])
    ending = rng.choice(["never", "count", "count", "until"])
    day = seen.wall(near()).date()
    return Rule(
        freq=freq,
        start=start,
        interval=rng.choice([1, 1, 2, 7, 15, 90] if freq == "MINUTELY" else [1, 1, 2, 3]),
        hours=some(range(4), 0.3),
        minutes=some(range(0, 60, 5), 0.4),
        weekdays=some(range(7), 0.2),
        count=rng.randint(1, 40) if ending == "count" else None,
        until=rng.choice([moment(), day]) if ending == "until" else None,
        extra=tuple(moment() for _ in range(rng.choice([0, 0, 1, 3]))),
        left_out=tuple(rng.choice([moment(), moment(), day]) for _ in range(rng.choice([0, 0, 1, 3]))),
        gap=rng.choice(["after", "skip"]),
        overlap=rng.choice(["first", "last", "both"]),
    )


def _written(moment: Moment) -> str:
    if not isinstance(moment, datetime):
        return f"{moment:%Y%m%d}"
    return f"{moment:%Y%m%dT%H%M%S}" + ("Z" if moment.tzinfo is not None else "")
