"""Cron expressions: what they match, what is rejected, and the cost of a hostile one."""

# ruff: noqa: DTZ001 - wall times carry no zone

from __future__ import annotations

import time
from calendar import monthrange
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule import schedule as make
from sexton.domain.schedule.cron_text import Dialect, parse

from .oracle import Expression, expressions

START = datetime(2026, 1, 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _walls(text: str, count: int, *, start: datetime = START, dialect: Dialect = "cron", seed: str = "") -> list[str]:
    found = islice(parse(text, dialect=dialect, seed=seed).walls(start), count)
    return [f"{wall:%Y-%m-%d %H:%M}" if wall.second == 0 else f"{wall:%Y-%m-%d %H:%M:%S}" for wall in found]


def _days(text: str, count: int, **options: Any) -> list[str]:
    return [wall[:10] for wall in _walls(text, count, **options)]


def test_five_six_and_seven_fields() -> None:
    """A2: seconds come first, a year last."""
    assert _walls("30 9 * * *", 2) == ["2026-01-01 09:30", "2026-01-02 09:30"]
    assert _walls("15 30 9 * * *", 1) == ["2026-01-01 09:30:15"]
    assert _walls("0 30 9 1 1 ? 2028-2030/2", 9) == ["2028-01-01 09:30", "2030-01-01 09:30"]
    assert _walls("0 30 9 1 1 ? *", 2) == ["2026-01-01 09:30", "2027-01-01 09:30"]


@pytest.mark.parametrize(
    ("alias", "meaning"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@HOURLY", "0 * * * *"),
    ],
)
def test_aliases(alias: str, meaning: str) -> None:
    """A2."""
    assert _walls(alias, 5) == _walls(meaning, 5)


def test_names_in_any_case_ranges_lists_and_steps() -> None:
    """A2."""
    assert parse("0 9 * jan,Mar-may Mon-FRI") == parse("0 9 * 1,3-5 1-5")
    assert parse("*/20 8-12/2 * * *") == parse("*/20 8,10,12 * * *")
    assert parse("5/20 * * * *").minutes == (5, 25, 45)


def test_ranges_wrap_around() -> None:
    """A2: FRI-MON is a long weekend, 22-4 a night, NOV-FEB a winter."""
    assert sorted(parse("0 0 * * FRI-MON").days.weekdays) == [0, 1, 5, 6]
    assert parse("0 22-4/2 * * *").hours == (0, 2, 4, 22)
    assert parse("0 0 1 NOV-FEB *").months == (1, 2, 11, 12)
    assert sorted(parse("0 0 25-5 * *").days.plain) == [1, 2, 3, 4, 5, *range(25, 32)]


def test_sunday_is_zero_and_seven_and_in_quartz_one() -> None:
    """A2: numbers mean cron's weekdays unless the dialect is quartz."""
    for sunday in ("0", "7", "SUN"):
        assert _days(f"0 0 * * {sunday}", 1) == ["2026-01-04"]
    assert parse("0 0 * * 5-7").days == parse("0 0 * * FRI-SUN").days
    assert parse("0 0 * * 7-2").days == parse("0 0 * * SUN-TUE").days
    assert parse("0 0 * * 0-7").days.weekdays == frozenset(range(7))
    assert _days("0 0 0 ? * 1", 1, dialect="quartz") == ["2026-01-04"]
    assert _days("0 0 0 ? * 2-6", 3, dialect="quartz") == ["2026-01-01", "2026-01-02", "2026-01-05"]
    assert _days("0 0 0 ? * L", 1, dialect="quartz") == ["2026-01-03"]


def test_day_of_month_or_day_of_week_matches() -> None:
    """A2: cron's rule, with Vixie's exception for a field that starts with a star."""
    assert _days("0 0 13 * FRI", 4) == ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]
    assert _days("0 0 */1 * FRI", 2) == ["2026-01-02", "2026-01-09"]
    assert _days("0 0 13 * */5", 2) == ["2026-02-13", "2026-03-13"]


def test_last_days_of_the_month() -> None:
    """A2: L, L-n, LW."""
    assert _days("0 0 L * *", 3) == ["2026-01-31", "2026-02-28", "2026-03-31"]
    assert _days("0 0 L-2 * *", 2) == ["2026-01-29", "2026-02-26"]
    assert _days("0 0 LW * *", 3) == ["2026-01-30", "2026-02-27", "2026-03-31"]
    assert _days("0 0 L 2 *", 3) == ["2026-02-28", "2027-02-28", "2028-02-29"]


def test_the_nearest_working_day_stays_in_its_month() -> None:
    """A2: nW."""
    assert _days("0 0 15W * *", 3) == ["2026-01-15", "2026-02-16", "2026-03-16"]
    assert _days("0 0 1W 8 *", 1) == ["2026-08-03"]  # the first is a Saturday
    assert _days("0 0 31W 1,5 *", 2) == ["2026-01-30", "2026-05-29"]  # the last is a Sunday in May
    assert _days("0 0 31W 2,3 *", 1) == ["2026-03-31"]  # February has no 31st


def test_the_nth_and_the_last_weekday() -> None:
    """A2: n#k and nL."""
    assert _days("0 0 ? * FRI#2", 2) == ["2026-01-09", "2026-02-13"]
    assert _days("0 0 * * 5#5", 2) == ["2026-01-30", "2026-05-29"]
    assert _days("0 0 * 2 MON#5", 1) == ["2044-02-29"]
    assert _days("0 0 * * FRIL", 2) == ["2026-01-30", "2026-02-27"]
    assert _days("0 0 0 ? * 6#5", 1, dialect="quartz") == ["2026-01-30"]


def test_leap_days_and_thirty_firsts_match_if_they_exist() -> None:
    """A2."""
    assert _days("0 0 29 2 *", 3) == ["2028-02-29", "2032-02-29", "2036-02-29"]
    assert _days("0 0 29 2 *", 2, start=datetime(2096, 3, 1)) == ["2104-02-29", "2108-02-29"]
    assert _days("0 0 31 * *", 4) == ["2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31"]
    assert _days("0 0 29 2 */7", 1) == ["2032-02-29"]  # both must match: a Sunday


@given(st.integers(1970, 2150), st.integers(1, 12), st.integers(1, 31))
def test_working_days_are_working_days_and_nearest(year: int, month: int, day: int) -> None:
    """A2: against the calendar."""
    length = monthrange(year, month)[1]
    found = parse(f"0 0 {day}W * *").days.of(year, month)
    working = [other for other in range(1, length + 1) if datetime(year, month, other).weekday() < 5]
    nearest = sorted(working, key=lambda other: (abs(other - day), other))[:1] if day <= length else []
    assert list(found) == nearest


@given(expressions(), st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1)))
@settings(max_examples=150, deadline=None)
def test_cronsim_finds_the_same_wall_times(expression: Expression, start: datetime) -> None:
    """A2: the next ten of any expression that cronsim can parse and that names a day."""
    start = start.replace(microsecond=0)
    try:
        theirs = list(islice(CronSim(expression.text, start), 10))
    except CronSimError:
        return
    if any("-" in field.text for field in expression):  # cronsim reads 5-5/2 as 5-59/2 and rejects wrap-around
        return
    walls = parse(expression.text).walls(start + timedelta(seconds=1))
    assert list(islice(walls, len(theirs))) == theirs


@given(expressions(), st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)))
@settings(max_examples=100, deadline=None)
def test_a_search_may_begin_at_any_time(expression: Expression, start: datetime) -> None:
    """A4: the wall times from any later start are the rest of those from an earlier one."""
    rule = parse(expression.text)
    found = list(islice(rule.walls(start), 12))
    assert all(wall >= start and expression.matches(wall) for wall in found)
    for begin in found[:3]:
        assert list(islice(rule.walls(begin), 5)) == found[found.index(begin) :][:5]
        later = begin + timedelta(microseconds=1)
        assert list(islice(rule.walls(later), 5)) == found[found.index(begin) + 1 :][:5]


def test_h_is_stable_evenly_distributed_and_in_range() -> None:
    """A2, B7: the same seed always, other seeds elsewhere, every value used."""
    assert parse("H H * * *", seed="acme/report") == parse("H H * * *", seed="acme/report")
    minutes = [parse("H * * * *", seed=str(number)).minutes[0] for number in range(6000)]
    counts = [minutes.count(minute) for minute in range(60)]
    assert min(counts) > 60
    assert max(counts) < 145
    for number in range(100):
        rule = parse("H(0-29) H(1-5) H * *", seed=str(number))
        assert rule.minutes[0] <= 29
        assert 1 <= rule.hours[0] <= 5
        assert max(rule.days.plain) <= 28
        assert [minute % 15 for minute in parse("H/15 * * * *", seed=str(number)).minutes] == [
            parse("H/15 * * * *", seed=str(number)).minutes[0]
        ] * 4
    assert len({parse("H(0-29)/10 * * * *", seed=str(number)).minutes for number in range(100)}) == 10
    assert parse("0 0 * * THU", seed="a") is parse("0 0 * * THU", seed="b")  # the H of THU is not a hash


def test_the_value_of_h_does_not_change_with_versions() -> None:
    """B7: a new release must not move existing jobs."""
    rule = parse("H H H * *", seed="acme/report")
    assert (rule.minutes, rule.hours, rule.days.plain) == ((12,), (4,), frozenset({6}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * * *", "8 fields"),
        ("60 * * * *", "minute '60' at position 1: use 0-59"),
        ("0 24 * * *", "hour '24' at position 3: use 0-23"),
        ("0 0 0 * *", "day-of-month '0' at position 5"),
        ("0 0 32 * *", "day-of-month '32' at position 5"),
        ("0 0 * 13 *", "month '13' at position 7: use 1-12 or JAN-DEC"),
        ("0 0 * * 8", "day-of-week '8' at position 9"),
        ("0 0 * * MOX", "day-of-week 'MOX' at position 9"),
        ("0 0 * * 1,2,MOX", "position 13"),
        ("0 0 * FOO *", "month 'FOO' at position 7"),
        ("*/0 * * * *", "a step must be 1 to 60"),
        ("*/90 * * * *", 'every: "90m"'),
        ("1--100000000 * * * *", "minute '1--100000000' at position 1"),
        ("1-2-3 * * * *", "is not valid"),
        ("1,,2 * * * *", "empty item"),
        (", * * * *", "empty item"),
        ("? * * * *", "use \\*"),
        ("0 0 L-31 * *", "L-1 to L-30"),
        ("0 0 32W * *", "day-of-month '32'"),
        ("0 0 * * L", "FRIL"),
        ("0 0 * * FRI#6", "#1 to #5"),
        ("0 0 * * FRI#0", "#1 to #5"),
        ("H(30-10) * * * *", "smaller value first"),
        ("0 0 0 1 1 ? 2030-2020", "smaller value first"),
        ("0 0 0 1 1 ? 1969", "year '1969'"),
        ("@reboot", "@hourly"),
        ("@every 5m", "give every"),
        ("٣ * * * *", "minute"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("0 0 0 1 1 ? 2020", "never fires"),
        ("0 0 * * * " + "x" * 10_000, "characters; the limit"),
        (7, "give a text"),
    ],
)
def test_errors_have_field_position_and_fix(text: Any, message: str) -> None:
    """A2, F2."""
    with pytest.raises(Invalid, match=message) as refused:
        make(now=NOW, cron=text)
    assert refused.value.field == "cron"
    assert len(str(refused.value)) < 300


def test_the_quartz_dialect_requires_one_question_mark_and_seconds() -> None:
    """A2."""
    with pytest.raises(Invalid, match="exactly one"):
        parse("0 0 9 * * *", dialect="quartz")
    with pytest.raises(Invalid, match="exactly one"):
        parse("0 0 9 ? * ?", dialect="quartz")
    with pytest.raises(Invalid, match="starts with the second"):
        parse("0 9 ? * MON", dialect="quartz")
    with pytest.raises(Invalid, match="dialect"):
        make(now=NOW, cron="0 9 * * *", dialect="vixie")


@given(st.text(alphabet="0123456789*/-,?LWH#@() MONFRIJA=", max_size=60) | st.text(max_size=300))
@settings(max_examples=400, deadline=None)
def test_any_text_is_either_parsed_or_rejected(text: str) -> None:
    """A2, F2: and soon, with tenfold headroom: CPU depends on the machine."""
    began = time.process_time()
    with suppress(Invalid):
        make(now=NOW, cron=text)
    # the search for similar zone names takes longest; the next test measures the rest
    assert time.process_time() - began < 2.5


@pytest.mark.parametrize(
    "text",
    [
        "1--100000000 * * * *",
        "0 0 30 2 *",
        "0 0 0 30 2 ? 2026-2150",
        "0 0 31W 2 *",
        "0 0 * 2 MON#5",
        "0-59 0-59 0-23 L-30 2 ?",
        ",".join(["*"] * 100) + " * * * *",
        ",".join(["1-59/2"] * 30) + " * * * *",
        "*" * 256,
        " " * 255,
        "9" * 10_000,
        "0 0 * * " + "MON," * 2_000,
    ],
    ids=lambda text: text[:25],
)
def test_a_hostile_expression_costs_little(text: str) -> None:
    """A2: best of three, with room for a slow machine."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        with suppress(Invalid):
            make(now=NOW, cron=text, exclude=["2026-12-25"])
        spent.append(time.process_time() - began)
    assert min(spent) < 0.25


def test_every_iteration_ends() -> None:
    """A2: a rule without a year ends in 2150."""
    assert len(list(parse("0 0 1 1 *").walls(START))) == 125
