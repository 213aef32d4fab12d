"""Fires around every clock change: compared with a minute-by-minute oracle, with cronsim, and by named cases."""

# ruff: noqa: DTZ001 - wall times carry no zone

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from random import Random
from typing import Any, Literal

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule import Schedule, fires, tzdata_order, tzdata_version
from sexton.domain.schedule import schedule as make
from sexton.domain.schedule.rule import DstRule
from sexton.domain.schedule.zone import names, zone

from .oracle import ALL, Expression, Field, changes, changing_zones, expected, expressions

DAY = timedelta(days=1)
NOW = datetime(2000, 1, 1, tzinfo=UTC)
ODD = ("Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Africa/Casablanca", "Europe/Dublin")
Gap = Literal["after", "skip"]
Overlap = Literal["first", "last", "both"]


def _found(schedule: Schedule, after: datetime, until: datetime) -> list[datetime]:
    return list(takewhile(lambda at: at <= until, fires(schedule, after=after)))


def _fires(start: str, days: float, **fields: Any) -> list[str]:
    """The wall times, with offset, of all fires from local midnight of `start` on."""
    made = make(now=NOW, **fields)
    where = zone(made.timezone)
    begin = datetime.fromisoformat(start).replace(tzinfo=where).astimezone(UTC)
    return [f"{at.astimezone(where):%d %H:%M%z}" for at in _found(made, begin - timedelta(seconds=1), begin + days * DAY)]


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and one of its changes."""
    name = draw(st.sampled_from(ODD) | st.sampled_from(sorted(names())).filter(changes))
    return name, draw(st.sampled_from(changes(name)))


@given(moments(), expressions(), st.sampled_from(["after", "skip"]), st.sampled_from(["first", "last", "both"]))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_fires_around_any_change_are_those_found_minute_by_minute(
    moment: tuple[str, datetime], expression: Expression, gap: Gap, overlap: Overlap
) -> None:
    """A2, A3: all IANA zones, three days around each change from 2000 to 2037, whatever the DST rule."""
    _agree(*moment, expression, gap, overlap)


@pytest.mark.skipif(not ALL, reason="SEXTON_TEST_ZONES=all: every change of every zone")
@pytest.mark.timeout(3600)
def test_fires_around_every_change_are_those_found_minute_by_minute() -> None:
    """A2, A3: as above, without exceptions."""
    rng = Random(4)
    for name in changing_zones():
        for change in changes(name):
            gap: Gap = rng.choice(["after", "skip"])
            overlap: Overlap = rng.choice(["first", "last", "both"])
            _agree(name, change, _random_expression(rng), gap, overlap)


def _random_expression(rng: Random) -> Expression:
    def field(low: int, high: int) -> Field:
        everything = range(low, high + 1)
        step = rng.randint(1, len(everything))
        one, other = sorted((rng.randint(low, high), rng.randint(low, high)))
        return rng.choice(
            [
                Field("*", frozenset(everything)),
                Field(f"*/{step}", frozenset(everything[::step])),
                Field(str(one), frozenset({one})),
                Field(f"{one}-{other}", frozenset(range(one, other + 1))),
                Field(f"{other},{one}", frozenset({one, other})),
            ]
        )

    anything = Field("*", frozenset(range(32)))
    return Expression(field(0, 59), field(0, 23), anything, anything, rng.choice([anything, field(0, 6)]))


def _agree(name: str, change: datetime, expression: Expression, gap: Gap, overlap: Overlap) -> None:
    schedule = Schedule(cron=expression.text, timezone=name, dst=DstRule(gap, overlap))
    after, until = change - 1.5 * DAY, change + 1.5 * DAY
    wanted = expected(expression, zone(name), after, until, gap, overlap)
    found = _found(schedule, after, until)
    assert found == wanted, (name, change, expression.text)
    # From any start of the search, the result is the rest of the same list.
    for minutes in (-90, -17, 0, 17, 75):
        begin = change + timedelta(minutes=minutes)
        rest = takewhile(lambda at: at <= until, fires(schedule, after=begin))
        assert list(islice(rest, 8)) == [at for at in found if at > begin][:8]


@given(moments(), expressions())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_cronsim_agrees_if_its_rules_are_the_same(moment: tuple[str, datetime], expression: Expression) -> None:
    """A2, A3: by default, for five fields without wrap-around, in zones that change by whole hours; not on days without
    midnight, which cronsim begins at one o'clock whatever the hour field is."""
    name, change = moment
    where = zone(name)
    shift = (change + DAY).astimezone(where).utcoffset() or timedelta(0)
    shift -= (change - DAY).astimezone(where).utcoffset() or timedelta(0)
    if shift % timedelta(hours=1) or abs(shift) > timedelta(hours=2) or _wraps(expression):
        return
    last_before = (change - timedelta(seconds=1)).astimezone(where)
    if shift > timedelta(0) and last_before.hour == 23:
        return
    after, until = change - DAY / 2, change + DAY / 2
    try:
        theirs = CronSim(expression.text, after.astimezone(where))
    except CronSimError:
        return  # never fires
    wanted = [at.astimezone(UTC) for at in takewhile(lambda at: at.astimezone(UTC) <= until, theirs)]
    assert _found(Schedule(cron=expression.text, timezone=name), after, until) == wanted, (name, change, expression.text)


def test_a_day_without_midnight_begins_with_the_first_matching_hour() -> None:
    """A3: Guatemala skipped the first hour of 2006-04-30; one o'clock is not an even hour."""
    at = _found(
        Schedule(cron="* */2 * * 0", timezone="America/Guatemala"),
        datetime(2006, 4, 29, tzinfo=UTC),
        datetime(2006, 5, 1, tzinfo=UTC),
    )
    assert at[0] == datetime(2006, 4, 30, 7, tzinfo=UTC)


def _wraps(expression: Expression) -> bool:
    """At the wrap-around, or at once if cronsim reads a step as an open range."""
    ranges = (field.text.split("/")[0].split("-") for field in expression if "-" in field.text)
    return any(int(first) >= int(last) for first, last in ranges)


def test_half_past_two_in_new_york() -> None:
    """A3: gap and overlap, every rule."""
    nightly = {"cron": "30 2 * * *", "timezone": "America/New_York"}
    assert _fires("2026-03-07", 3, **nightly) == ["07 02:30-0500", "08 03:00-0400", "09 02:30-0400"]
    assert _fires("2026-03-07", 3, **nightly, dst={"gap": "skip"}) == ["07 02:30-0500", "09 02:30-0400"]
    early = {"cron": "30 1 * * *", "timezone": "America/New_York"}
    assert _fires("2026-10-31", 3, **early) == ["31 01:30-0400", "01 01:30-0400", "02 01:30-0500"]
    assert _fires("2026-10-31", 3, **early, dst={"overlap": "last"}) == ["31 01:30-0400", "01 01:30-0500", "02 01:30-0500"]
    both = _fires("2026-10-31", 3, **early, dst={"overlap": "both"})
    assert both == ["31 01:30-0400", "01 01:30-0400", "01 01:30-0500", "02 01:30-0500"]
    assert _fires("2026-10-31", 3, **nightly) == ["31 02:30-0400", "01 02:30-0500", "02 02:30-0500"]


def test_two_years_of_half_past_two_have_one_fire_a_day() -> None:
    """A3, B1: no day missing, none doubled."""
    where = zone("America/New_York")
    begin = datetime(2026, 1, 1, tzinfo=where).astimezone(UTC)
    found = _found(Schedule(cron="30 2 * * *", timezone=where.key), begin, begin + 730 * DAY)
    assert [at.astimezone(where).toordinal() for at in found] == [
        begin.astimezone(where).toordinal() + day for day in range(730)
    ]


def test_a_search_from_inside_an_overlap_finds_its_whole_second_pass() -> None:
    """A3, A4: at 01:45 in the first pass, 01:00 and 01:30 will occur once more."""
    first_pass = datetime(2026, 11, 1, 5, 45, tzinfo=UTC)
    again = datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    for overlap in ("last", "both"):
        fixed = make(now=NOW, cron="30 1 * * *", timezone="America/New_York", dst={"overlap": overlap})
        assert next(fires(fixed, after=first_pass)) == again
    assert next(fires(Schedule(cron="30 1 * * *", timezone="America/New_York"), after=first_pass)) > again + DAY / 2
    spaced = Schedule(cron="*/15 * * * *", timezone="America/New_York")
    assert next(fires(spaced, after=first_pass)) == datetime(2026, 11, 1, 6, 0, tzinfo=UTC)


def test_wall_times_that_resolve_to_one_instant_in_a_gap_are_one_fire() -> None:
    """A3, rule "one instant, one fire": 02:00, 02:15, 02:30 and 02:45 do not exist, and 03:00 fires as well; that is one fire,
    at 03:00."""
    found = _fires("2026-03-08", 0.5, cron="0,15,30,45 2,3 * * *", timezone="America/New_York")
    assert found == ["08 03:00-0400", "08 03:15-0400", "08 03:30-0400", "08 03:45-0400"]
    assert _fires("2026-03-08", 0.5, cron="*/10 30 2 * * *", timezone="America/New_York") == ["08 03:00-0400"]


def test_a_rule_that_counts_minutes_or_hours_keeps_its_spacing_through_both_changes() -> None:
    """A3: as Debian's cron; the DST rule does not apply."""
    for overlap in ("first", "last", "both"):
        for change in (datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)):
            dst = DstRule("after", overlap)
            for cron, spacing in (("*/15 * * * *", 15), ("30 * * * *", 60), ("H/20 * * * *", 20)):
                schedule = Schedule(cron=cron, timezone="America/New_York", dst=dst)
                found = _found(schedule, change - DAY, change + DAY)
                assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=spacing)}


def test_lord_howe_moves_by_half_an_hour() -> None:
    """A3."""
    howe = {"timezone": "Australia/Lord_Howe"}
    assert _fires("2026-10-04", 1, cron="15 2 * * *", **howe) == ["04 02:30+1100"]
    assert _fires("2026-04-05", 1, cron="45 1 * * *", **howe) == ["05 01:45+1100"]
    assert _fires("2026-04-05", 1, cron="45 1 * * *", **howe, dst={"overlap": "last"}) == ["05 01:45+1030"]
    assert len(_fires("2026-04-05", 0.25, cron="*/10 1 * * *", **howe)) == 9


def test_troll_moves_by_two_hours() -> None:
    """A3."""
    troll = {"timezone": "Antarctica/Troll"}
    assert _fires("2026-03-29", 0.9, cron="30 1 * * *", **troll) == ["29 03:00+0200"]
    assert _fires("2026-03-29", 0.9, cron="30 2 * * *", **troll) == ["29 03:00+0200"]
    assert _fires("2026-10-25", 1, cron="30 1,2 * * *", **troll, dst={"overlap": "both"}) == [
        "25 01:30+0200",
        "25 02:30+0200",
        "25 01:30+0000",
        "25 02:30+0000",
    ]


def test_apia_had_no_thirtieth_of_december_2011() -> None:
    """A3: all fires of that day are one, at its end."""
    noon = {"timezone": "Pacific/Apia", "cron": "0 12 * * *"}
    assert _fires("2011-12-29", 3, **noon) == ["29 12:00-1000", "31 00:00+1400", "31 12:00+1400", "01 12:00+1400"]
    assert _fires("2011-12-29", 3, **noon, dst={"gap": "skip"}) == ["29 12:00-1000", "31 12:00+1400", "01 12:00+1400"]


def test_casablanca_leaves_its_time_for_ramadan() -> None:
    """A3: back an hour before, forward after."""
    nightly = {"cron": "30 2 * * *", "timezone": "Africa/Casablanca"}
    assert _fires("2024-03-09", 3, **nightly) == ["09 02:30+0100", "10 02:30+0100", "11 02:30+0000"]
    assert _fires("2024-04-13", 3, **nightly) == ["13 02:30+0000", "14 03:00+0100", "15 02:30+0100"]


def test_dublin_has_negative_dst_in_winter() -> None:
    """A3: negative DST is a change like any other."""
    dublin = {"timezone": "Europe/Dublin", "cron": "30 1 * * *"}
    assert _fires("2026-03-29", 1, **dublin) == ["29 02:00+0100"]
    assert _fires("2026-10-25", 1, **dublin) == ["25 01:30+0100"]


def test_a_zone_that_changes_its_rules_is_handled() -> None:
    """A3: Turkey made its summer time permanent in 2016; Mexico ended clock changes in 2022."""
    assert _fires("2016-11-06", 1, cron="0 9 * * *", timezone="Europe/Istanbul") == ["06 09:00+0300"]
    assert _fires("2026-04-05", 1, cron="30 2 * * *", timezone="America/Mexico_City") == ["05 02:30-0600"]


@given(st.sampled_from(sorted(names())), st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)))
@settings(max_examples=200, deadline=None)
def test_noon_occurs_once_a_day_everywhere(name: str, start: datetime) -> None:
    """A3: fires are UTC, increasing, distinct, and strictly after the given instant."""
    after = start.replace(tzinfo=UTC)
    found = list(islice(fires(Schedule(cron="0 12 * * *", timezone=name), after=after), 5))
    assert all(earlier < later for earlier, later in zip([after, *found], found, strict=False))
    assert all(at.tzinfo is UTC for at in found)
    assert found[-1] - after < 8 * DAY


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("america/new_york", "America/New_York"),
        ("New_York", "America/New_York"),
        ("Kolkata", "Asia/Kolkata"),
        ("Europe/Berln", "Europe/Berlin"),
        ("", "America/New_York"),
        ("+02:00", "UTC"),
        ("../../etc/passwd", "UTC"),
        ("x" * 10_000, "UTC"),
        (None, "UTC"),
        (7, "UTC"),
    ],
)
def test_an_unknown_zone_is_rejected_with_a_suggestion(written: Any, meant: str) -> None:
    """A3, F2."""
    with pytest.raises(Invalid, match=meant) as refused:
        zone(written)
    assert refused.value.field == "timezone"
    assert len(str(refused.value)) < 300


def test_the_version_of_the_zones_is_known_and_ordered() -> None:
    """A3: only newer data replans."""
    assert tzdata_order(tzdata_version()) >= tzdata_order("2026a")
    assert tzdata_order("2025c") < tzdata_order("2026a") < tzdata_order("2026b")
    with pytest.raises(Invalid):
        tzdata_order("newest")
