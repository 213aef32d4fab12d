"""A schedule as a whole: what is rejected, what is stored, limits, exclusions, jitter, and its description."""

# ruff: noqa: DTZ001 - wall times carry no zone

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule import Jitter, Schedule, describe, fires, jitter_of, last_fire, next_fire
from sexton.domain.schedule import schedule as make
from sexton.domain.schedule.spacing import least_spacing_s
from sexton.domain.schedule.zone import zone

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

EVERYTHING: list[dict[str, Any]] = [
    {"cron": "0 9 * * MON-FRI", "timezone": "America/New_York", "jitter": "30s"},
    {"cron": "CRON_TZ=Asia/Kolkata H 9 1-7 * *", "dst": {"gap": "skip", "overlap": "both"}},
    {"cron": "0 0 0 ? JAN-MAR 6L 2027", "dialect": "quartz", "max_fires": 2},
    {"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "start_at": "2026-02-01T09:00:00+01:00"},
    {"rrule": "DTSTART;TZID=Europe/Paris:20260301T023000 RRULE:FREQ=WEEKLY;COUNT=3"},
    {"every": "15m", "jitter": {"max": "1m", "both": True}, "end_at": datetime(2027, 1, 1, tzinfo=UTC)},
    {"every": 900, "anchor_at": "2026-01-01T00:07:00Z", "exclude": ["2026-12-25", "22:00-06:00"]},
    {"every": "1h", "exclude": [{"from": "2026-05-01T00:00:00Z", "to": "2026-05-02T00:00:00+02:00"}]},
]


@pytest.mark.parametrize("fields", EVERYTHING, ids=str)
def test_a_stored_schedule_is_read_back_as_the_same(fields: dict[str, Any]) -> None:
    """A2: as JSON in the database, and sent back to the API as it was answered."""
    made = make(now=NOW, seed="a", **fields)
    stored = msgspec.json.encode(made)
    assert msgspec.json.decode(stored, type=Schedule) == made
    assert make(now=NOW, seed="a", **msgspec.json.decode(stored)) == made
    assert b"null" not in stored
    assert hash(made) == hash(msgspec.json.decode(stored, type=Schedule))


def test_json_has_only_what_differs_from_the_default() -> None:
    """A2."""
    assert msgspec.json.encode(make(now=NOW, cron="0 9 * * *", timezone="UTC", dst={})) == b'{"cron":"0 9 * * *"}'
    assert msgspec.to_builtins(make(now=NOW, every="90s", jitter="5s")) == {
        "every": 90.0,
        "jitter": {"max": 5.0},
        "anchor_at": "2026-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "cron", "exactly one"),
        ({"cron": "0 9 * * *", "every": "1h"}, "cron", "exactly one"),
        ({"cron": "0 9 * * *", "timezone": "Mars/Olympus"}, "timezone", "IANA"),
        ({"cron": "CRON_TZ=Mars/Olympus 0 9 * * *"}, "cron", "IANA"),
        ({"cron": "TZ=Europe/Rome 0 9 * * *", "timezone": "Europe/Paris"}, "timezone", "contradicts"),
        ({"every": "0s"}, "every", "not an interval"),
        ({"every": "soon"}, "every", "not a duration"),
        ({"every": "500ms"}, "every", "the minimum is 1 s between two fires"),
        ({"cron": "* * * * * *", "min_spacing_s": 60}, "cron", "fires every 1 s; the minimum"),
        ({"cron": "*/5 * * * *", "min_spacing_s": 600}, "cron", "fires every 300 s"),
        ({"rrule": "FREQ=SECONDLY;INTERVAL=30", "min_spacing_s": 60}, "rrule", "fires every 30 s"),
        ({"rrule": "FREQ=DAILY;BYHOUR=1;BYMINUTE=0;BYSECOND=0,5", "min_spacing_s": 60}, "rrule", "fires every 5 s"),
        ({"cron": "0 9 * * *", "dst": {"gap": "before"}}, "dst.gap", "after or skip"),
        ({"cron": "0 9 * * *", "dst": {"overlap": "twice"}}, "dst.overlap", "first, last or both"),
        ({"cron": "0 9 * * *", "dst": "after"}, "dst", "write"),
        ({"cron": "0 9 * * *", "dst": {"gapp": "after"}}, "dst", "write"),
        ({"cron": "0 9 * * *", "jitter": "25h"}, "jitter", "30 minutes"),
        ({"cron": "0 9 * * *", "jitter": {"both": True}}, "jitter", "write"),
        ({"cron": "0 9 * * *", "jitter": {"max": "1s", "both": "yes"}}, "jitter", "write"),
        ({"cron": "0 9 * * *", "start_at": "tomorrow"}, "start_at", "with an offset"),
        ({"cron": "0 9 * * *", "start_at": datetime(2026, 1, 1)}, "start_at", "with an offset"),
        ({"cron": "0 9 * * *", "start_at": "9999-12-31T23:59:59-01:00"}, "start_at", "between 1970 and 2199"),
        ({"cron": "0 9 * * *", "end_at": "2025-01-01T00:00:00Z"}, "end_at", "in the past"),
        (
            {"cron": "0 9 * * *", "start_at": "2027-01-01T00:00:00Z", "end_at": "2026-06-01T00:00:00Z"},
            "end_at",
            "before start_at",
        ),
        ({"cron": "0 9 * * *", "end_at": "2026-01-01T08:00:00Z"}, "cron", "never fires .* within end_at"),
        ({"cron": "0 3 * * *", "exclude": ["22:00-06:00"]}, "cron", "never fires .* within exclude"),
        ({"cron": "0 9 * * *", "max_fires": 0}, "max_fires", "from 1 to"),
        ({"cron": "0 9 * * *", "max_fires": True}, "max_fires", "from 1 to"),
        ({"cron": "0 9 * * *", "exclude": "2026-12-25"}, "exclude", "give a list"),
        ({"cron": "0 9 * * *", "exclude": ["2026-02-30"]}, "exclude.0", "neither a date"),
        ({"cron": "0 9 * * *", "exclude": ["2026-12-25", "25:00-26:00"]}, "exclude.1", "neither a date"),
        ({"cron": "0 9 * * *", "exclude": ["10:00-10:00"]}, "exclude.0", "pause the job"),
        ({"cron": "0 9 * * *", "exclude": [{"from": "2026-01-01T00:00:00Z"}]}, "exclude.0", "write"),
        ({"cron": "0 9 * * *", "exclude": [{"from": "x", "to": "y"}]}, "exclude.0.from", "with an offset"),
        (
            {"cron": "0 9 * * *", "exclude": [{"from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}]},
            "exclude.0",
            "before to",
        ),
        ({"cron": "0 9 * * *", "exclude": ["2026-12-25"] * 501}, "exclude", "the limit is 500"),
    ],
    ids=str,
)
def test_an_impossible_schedule_is_rejected_with_field_and_fix(fields: dict[str, Any], field: str, message: str) -> None:
    """A2, F2."""
    with pytest.raises(Invalid, match=message) as refused:
        make(now=NOW, **fields)
    assert refused.value.field == field


def test_an_interval_does_not_drift() -> None:
    """A2: anchor plus n intervals, to the microsecond, from any later time and through any clock change."""
    anchor = datetime(2026, 1, 1, 0, 0, 0, 123_457, tzinfo=UTC)
    made = make(now=anchor, every="0.7s", timezone="America/New_York", min_spacing_s=0.1)
    step = timedelta(milliseconds=700)
    assert list(islice(fires(made, after=anchor), 3)) == [anchor + step, anchor + 2 * step, anchor + 3 * step]
    late = anchor + 10_000_000 * step
    assert next_fire(made, after=late) == late + step
    assert next_fire(made, after=late - timedelta(microseconds=1)) == late


def test_an_interval_counts_from_start_at_or_from_its_anchor() -> None:
    """A2."""
    started = make(now=NOW, every="1h", start_at="2026-01-01T00:30:00Z")
    assert next_fire(started, after=NOW) == datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    anchored = make(now=NOW, every="1h", anchor_at="2026-06-01T00:07:00Z")
    assert next_fire(anchored, after=NOW) == datetime(2026, 1, 1, 0, 7, tzinfo=UTC)


def test_start_and_end_are_inclusive() -> None:
    """A2."""
    made = make(now=NOW, cron="0 9 * * *", start_at="2026-01-03T09:00:00Z", end_at="2026-01-05T09:00:00Z")
    assert [at.day for at in fires(made, after=NOW)] == [3, 4, 5]


def test_fires_are_limited_in_number() -> None:
    """A2: those already fired count."""
    made = make(now=NOW, cron="0 9 * * *", max_fires=3)
    assert len(list(fires(made, after=NOW))) == 3
    assert len(list(fires(made, after=NOW, fired_count=2))) == 1
    assert next_fire(made, after=NOW, fired_count=3) is None
    assert next_fire(made, after=NOW, fired_count=4) is None


def test_excluded_dates_windows_and_nights_have_no_fires() -> None:
    """A2: dates and daily windows in the schedule's own zone, windows between instants; the end of one is not in it."""
    made = make(
        now=NOW,
        cron="0 */6 * * *",
        timezone="America/New_York",
        exclude=["2026-01-02", "00:00-06:00", {"from": "2026-01-03T17:00:00Z", "to": "2026-01-03T23:00:00Z"}],
    )
    where = zone("America/New_York")
    found = [f"{at.astimezone(where):%d %H:%M}" for at in islice(fires(made, after=datetime(2026, 1, 1, 5, tzinfo=UTC)), 7)]
    assert found == ["01 06:00", "01 12:00", "01 18:00", "03 06:00", "03 18:00", "04 06:00", "04 12:00"]


def test_a_night_may_go_through_midnight() -> None:
    """A2."""
    made = make(now=NOW, cron="0 * * * *", exclude=["22:00-06:00"])
    assert sorted({at.hour for at in islice(fires(made, after=NOW), 48)}) == list(range(6, 22))
    until_midnight = make(now=NOW, cron="0 * * * *", exclude=["06:00-24:00"])
    assert sorted({at.hour for at in islice(fires(until_midnight, after=NOW), 12)}) == list(range(6))


def test_a_long_excluded_time_of_a_dense_schedule_is_skipped() -> None:
    """A2: a year of excluded seconds is one step, and 400 excluded nights do not end the schedule."""
    made = make(now=NOW, cron="* * * * * *", exclude=[{"from": "2026-01-01T00:00:00Z", "to": "2027-01-01T00:00:00Z"}])
    assert next_fire(made, after=NOW) == datetime(2027, 1, 1, tzinfo=UTC)
    nightly = make(now=NOW, cron="0 0,12 * * *", exclude=["22:00-06:00"])
    assert len(list(islice(fires(nightly, after=NOW), 2500))) == 2500


@pytest.mark.parametrize("rule", [{"every": "1s"}, {"cron": "* * * * * *"}])
@pytest.mark.parametrize(
    ("timezone", "exclude", "before", "end"),
    [
        (
            "Europe/Berlin",
            "22:00-02:30",
            datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC),
            datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
        ),
        (
            "America/New_York",
            "22:00-01:30",
            datetime(2026, 11, 1, 5, 59, 59, tzinfo=UTC),
            datetime(2026, 11, 1, 6, 30, tzinfo=UTC),
        ),
    ],
)
def test_an_excluded_time_in_the_repeated_hour_ends_in_each_pass(
    rule: dict[str, Any], timezone: str, exclude: str, before: datetime, end: datetime
) -> None:
    """A2: the search once went through it fire by fire, and the schedule ended after a thousand of them."""
    made = make(now=NOW, timezone=timezone, exclude=[exclude], **rule)
    assert next_fire(made, after=before - timedelta(seconds=2)) == before - timedelta(seconds=1)
    assert next_fire(made, after=before) == end


@pytest.mark.parametrize(
    "rule", [{"cron": "*/15 * * * *"}, {"rrule": "FREQ=MINUTELY;INTERVAL=15", "anchor_at": "2026-11-01T04:00:00Z"}]
)
def test_an_excluded_time_that_begins_in_the_repeated_hour_ends_with_its_first_pass(rule: dict[str, Any]) -> None:
    """A2: 06:00 Z is 01:00 again, which is not in the window; the fires are the same wherever the search begins."""
    made = make(now=NOW, timezone="America/New_York", exclude=["01:30-02:30"], **rule)
    wanted = [datetime(2026, 11, 1, *at, tzinfo=UTC) for at in ((5, 0), (5, 15), (6, 0), (6, 15), (7, 30), (7, 45))]
    for after in (wanted[0] + timedelta(minutes=n) for n in range(-10, 160, 5)):
        left = [at for at in wanted if at > after]
        assert list(islice(fires(made, after=after), len(left))) == left, after
    assert last_fire(made, after=wanted[0] - timedelta(days=1), until=wanted[3] + timedelta(minutes=5)) == wanted[3]


def test_an_excluded_date_that_begins_before_clocks_go_back_over_midnight_ends_with_the_first_pass() -> None:
    """A2: at one minute past midnight it is 23:01 of the day before again, and that day is not excluded."""
    made = make(now=datetime(2005, 1, 1, tzinfo=UTC), cron="*/20 * * * *", timezone="America/St_Johns", exclude=["2005-10-30"])
    seen = list(islice(fires(made, after=datetime(2005, 10, 30, 1, 45, tzinfo=UTC)), 5))
    assert [f"{at:%d %H:%M}" for at in seen] == ["30 01:50", "30 02:10", "30 02:50", "30 03:10", "31 03:30"]


def test_a_schedule_without_fires_costs_little() -> None:
    """A2: it is rejected after a thousand excluded times in a row, not at the end of time."""
    spent = []
    for _ in range(5):
        began = process_time()
        with pytest.raises(Invalid, match="never fires"):
            make(now=NOW, cron="0 3 * * *", timezone="America/New_York", exclude=["22:00-06:00"])
        spent.append(process_time() - began)
    assert min(spent) < 0.25


def test_jitter_is_stable_bounded_and_even() -> None:
    """B7: the same for one job always, spread over jobs; one-sided or both."""
    late = Schedule(cron="0 0 * * *", jitter=Jitter(60))
    both = Schedule(cron="0 0 * * *", jitter=Jitter(60, both=True))
    offsets = [jitter_of(late, f"acme/{number}").total_seconds() for number in range(5000)]
    assert offsets == [jitter_of(late, f"acme/{number}").total_seconds() for number in range(5000)]
    assert 0 <= min(offsets) < 0.2
    assert 59.8 < max(offsets) < 60
    tenths = [sum(tenth <= offset / 6 < tenth + 1 for offset in offsets) for tenth in range(10)]
    assert min(tenths) > 400
    assert max(tenths) < 600
    assert abs(sum(jitter_of(both, str(number)).total_seconds() for number in range(5000)) / 5000) < 1.5
    assert min(jitter_of(both, str(number)).total_seconds() for number in range(5000)) < -59
    assert jitter_of(Schedule(cron="0 0 * * *"), "a") == timedelta(0)
    assert jitter_of(late, "acme/report") == timedelta(
        seconds=48, microseconds=585920
    )  # a new release must not move existing jobs


@given(st.sampled_from(EVERYTHING), st.datetimes(datetime(2026, 1, 1), datetime(2027, 6, 1)))
@settings(max_examples=150, deadline=None)
def test_fires_increase_and_follow_from_any_instant(fields: dict[str, Any], start: datetime) -> None:
    """A4: only the last fire needs to be stored: the next one found from it is the next of the list."""
    made = make(now=NOW, **fields)
    after = start.replace(tzinfo=UTC)
    unlimited = msgspec.structs.replace(made, max_fires=None)
    found = list(islice(fires(unlimited, after=after), 6))
    assert all(earlier < later for earlier, later in zip([after, *found], found, strict=False))
    for earlier, later in pairwise(found):
        assert next_fire(unlimited, after=earlier) == later
        assert next_fire(unlimited, after=later - timedelta(microseconds=1)) == later


@given(st.sampled_from(EVERYTHING), st.floats(0, 500), st.floats(0, 30))
@settings(max_examples=100, deadline=None)
def test_the_last_fire_of_a_span_is_the_last_of_its_list(fields: dict[str, Any], begin: float, length: float) -> None:
    """B6."""
    made = msgspec.structs.replace(make(now=NOW, **fields), max_fires=None)
    after, until = NOW + begin * DAY, NOW + (begin + length) * DAY
    listed = [at for at in islice(fires(made, after=after), 3000) if at <= until]
    assert last_fire(made, after=after, until=until) == (listed[-1] if listed else None)


@given(st.sampled_from(["*/7 * * * *", "0,10,59 * * * *", "5 3,4,9 * * *", "*/25 0 * * * *", "0 0 1 * *", "50-59/3 * 9 * * *"]))
def test_no_two_fires_are_closer_than_the_spacing(cron: str) -> None:
    """A2."""
    schedule = Schedule(cron=cron)
    found = list(islice(fires(schedule, after=NOW), 500))
    closest = min(later - earlier for earlier, later in pairwise(found))
    assert timedelta(seconds=least_spacing_s(schedule)) <= closest


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (EVERYTHING[0], "At 09:00 on Monday to Friday, New York time; 30 s of jitter"),
        ({"cron": "* * * * *"}, "Every minute, UTC"),
        ({"cron": "*/15 9-17 * * *"}, "Every 15 minutes from 09:00 to 17:45, UTC"),
        ({"cron": "5 * * * *"}, "Every hour at 5 minutes past, UTC"),
        ({"cron": "0 */2 * * *"}, "Every 2 hours, UTC"),
        ({"cron": "*/10 * * * * *"}, "Every 10 seconds, UTC"),
        ({"cron": "0 8,20 * * *"}, "At 08:00 and 20:00, UTC"),
        ({"cron": "0 0 13 * FRI"}, "At 00:00 on the 13th of the month or on Friday, UTC"),
        ({"cron": "0 0 LW * *"}, "At 00:00 on the last working day of the month, UTC"),
        ({"cron": "0 0 1,15W * *"}, "At 00:00 on the 1st and the working day nearest the 15th of the month, UTC"),
        ({"cron": "0 0 * * SAT,SUN"}, "At 00:00 on Saturday and Sunday, UTC"),
        ({"cron": "30 6 * * FRI-MON"}, "At 06:30 on Monday and Friday to Sunday, UTC"),
        (
            {"cron": "0 0 0 ? JAN-MAR 6L 2027", "dialect": "quartz"},
            "At 00:00 on the last Friday of the month in January to March in 2027, UTC",
        ),
        ({"every": "15m"}, "Every 15 min, counted from 2026-01-01 00:00 UTC"),
        (
            {"rrule": "DTSTART:20260302T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=3", "timezone": "Europe/Paris"},
            "Every 2 weeks on Monday and Wednesday at 09:00 from 2026-03-02 09:00, 3 times, Paris time",
        ),
        (
            {"rrule": "DTSTART:20260302T090000 RRULE:FREQ=DAILY;COUNT=1 RDATE:20260309T090000"},
            "Every day at 09:00 from 2026-03-02 09:00, once, and 1 more, UTC",
        ),
        (
            {"rrule": "DTSTART:20260302T090000 RRULE:FREQ=MINUTELY;BYHOUR=9"},
            "Every minute in hour 9 from 2026-03-02 09:00, UTC",
        ),
        (
            {"rrule": "DTSTART:20260302T090000 RRULE:FREQ=HOURLY;BYHOUR=9,10;BYMINUTE=15"},
            "Every hour in hours 9 and 10 at minute 15 from 2026-03-02 09:00, UTC",
        ),
        (
            {"rrule": "DTSTART:20260302T090000 RRULE:FREQ=MINUTELY;BYMINUTE=0,30;BYSECOND=0,20"},
            "Every minute at minutes 0 and 30 at seconds 0 and 20 from 2026-03-02 09:00, UTC",
        ),
        ({"rrule": "DTSTART:20260302T091500 RRULE:FREQ=HOURLY"}, "Every hour from 2026-03-02 09:15, UTC"),
        (
            {"cron": "0 9 * * *", "max_fires": 1, "end_at": "2027-01-01T00:00:00Z", "exclude": ["2026-12-25"]},
            "At 09:00, UTC; until 2027-01-01 00:00 UTC; once; not on or in 2026-12-25",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schedule_is_described_in_words(fields: dict[str, Any], words: str) -> None:
    """A2, A14."""
    assert describe(make(now=NOW, **fields)) == words


@given(st.sampled_from(EVERYTHING), st.text(max_size=20))
def test_every_schedule_can_be_described(fields: dict[str, Any], seed: str) -> None:
    """A14."""
    assert describe(make(now=NOW, seed=seed, **fields), seed)


def test_an_instant_without_an_offset_is_rejected() -> None:
    """F2: and instants at the limits of datetime end the search without an error."""
    made = Schedule(cron="0 9 * * *", timezone="America/New_York")
    with pytest.raises(Invalid, match="after"):
        next_fire(made, after=datetime(2026, 1, 1))
    assert next_fire(made, after=datetime.max.replace(tzinfo=UTC)) is None
    assert next_fire(made, after=datetime.min.replace(tzinfo=UTC)) is not None
