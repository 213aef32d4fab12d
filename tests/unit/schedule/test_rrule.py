"""RFC 5545 recurrences: compared with python-dateutil, by named cases, and the cost of a hostile rule."""

# ruff: noqa: DTZ001 - wall times carry no zone

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule import fires, next_fire
from sexton.domain.schedule import schedule as make
from sexton.domain.schedule.rrule_text import parse
from sexton.domain.schedule.zone import zone

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def _fires(count: int, *, after: datetime = NOW, **fields: Any) -> list[str]:
    made = make(now=NOW, **fields)
    where = zone(made.timezone)
    return [f"{at.astimezone(where):%Y-%m-%d %H:%M}" for at in islice(fires(made, after=after), count)]


def _some(low: int, high: int, *, negative: bool = False) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    if negative:
        number |= st.integers(-high, -low)
    return st.lists(number, min_size=1, max_size=3, unique=True).map(lambda numbers: ",".join(map(str, numbers)))


@st.composite
def rules(draw: st.DrawFn) -> str:
    freq = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]))
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.integers(1, 4))}", f"WKST={draw(st.sampled_from(DAYS))}"]

    def maybe(part: str, values: st.SearchStrategy[str], *, weight: int = 3) -> None:
        if draw(st.integers(0, weight)) == 0:
            parts.append(f"{part}={draw(values)}")

    maybe("BYMONTH", _some(1, 12))
    if freq != "WEEKLY":
        maybe("BYMONTHDAY", _some(1, 31, negative=True))
    plain = st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True).map(",".join)
    if freq in ("YEARLY", "MONTHLY"):
        nth = st.builds(lambda which, day: f"{which}{day}", st.sampled_from([1, 2, 3, 4, 5, -1, -2]), st.sampled_from(DAYS))
        maybe("BYDAY", plain | nth, weight=1)
    else:
        maybe("BYDAY", plain)
    # Without BYDAY the weekday is DTSTART's; dateutil uses all seven.
    if freq == "YEARLY" and any(part.startswith("BYDAY") and part[6] in "MTWFS" for part in parts):
        maybe("BYWEEKNO", _some(1, 53, negative=True))
    if freq == "YEARLY":
        maybe("BYYEARDAY", _some(1, 366, negative=True), weight=6)
    maybe("BYHOUR", _some(0, 23))
    maybe("BYMINUTE", _some(0, 59))
    # here a week that begins before DTSTART counts as a whole
    if freq not in ("HOURLY", "MINUTELY", "WEEKLY") and len(parts) > 3:
        maybe("BYSETPOS", _some(1, 3, negative=True))
    return ";".join(parts)


@given(rules(), st.datetimes(datetime(2020, 1, 1), datetime(2026, 1, 1)), st.integers(0, 900))
@settings(max_examples=200, deadline=None)
def test_dateutil_finds_the_same_occurrences(rule: str, start: datetime, days: int) -> None:
    """A2: three years of any rule, from DTSTART and from any later time."""
    start = start.replace(microsecond=0)
    end = start + timedelta(days=3 * 366)
    if "BYSETPOS" in rule:  # dateutil cuts the first period at DTSTART before it picks
        start = start.replace(month=1, day=1, hour=0, minute=0, second=0)
    text = f"DTSTART:{start:%Y%m%dT%H%M%S}\nRRULE:{rule};UNTIL={end:%Y%m%dT%H%M%S}"
    ours = list(takewhile(lambda wall: wall <= end, islice(_recurrence(text).walls(start), 400)))
    if not ours:  # dateutil would search until the year 9999
        return
    assert ours == list(islice(rrulestr(text), 400))
    begin = start + timedelta(days=days)
    assert list(islice(_recurrence(text).walls(begin), 5)) == [wall for wall in ours if wall >= begin][:5] or len(ours) == 400


def _recurrence(text: str) -> Any:
    return parse(text, timezone="UTC", anchor_at=NOW)


def test_a_rule_without_a_start_begins_at_the_submission() -> None:
    """A2: at the next whole second, so that the first of its COUNT is not lost; or at start_at."""
    submitted = datetime(2026, 1, 1, 9, 30, 15, 250_000, tzinfo=UTC)
    made = make(now=submitted, rrule="FREQ=DAILY;COUNT=2")
    assert list(fires(made, after=submitted)) == [
        datetime(2026, 1, 1, 9, 30, 16, tzinfo=UTC),
        datetime(2026, 1, 2, 9, 30, 16, tzinfo=UTC),
    ]
    assert _fires(2, rrule="FREQ=DAILY", start_at="2026-02-01T12:00:00Z") == ["2026-02-01 12:00", "2026-02-02 12:00"]


def test_the_zone_comes_from_the_schedule_or_from_the_text() -> None:
    """A2, A3."""
    paris = "DTSTART;TZID=Europe/Paris:20260328T023000\nRRULE:FREQ=DAILY"
    expected = ["2026-03-28 02:30", "2026-03-29 03:00", "2026-03-30 02:30"]
    assert _fires(3, rrule=paris) == expected
    assert _fires(3, rrule=paris, timezone="Europe/Paris") == expected
    assert _fires(3, rrule="TZID=Europe/Paris:DTSTART:20260328T023000 RRULE:FREQ=DAILY") == expected
    assert _fires(3, rrule="DTSTART:20260328T023000 FREQ=DAILY", timezone="Europe/Paris") == expected
    assert make(now=NOW, rrule="DTSTART:20260328T013000Z FREQ=DAILY").timezone == "UTC"
    with pytest.raises(Invalid, match="contradicts"):
        make(now=NOW, rrule=paris, timezone="Europe/Rome")
    with pytest.raises(Invalid, match="several time zones"):
        make(now=NOW, rrule=paris + "\nEXDATE;TZID=Europe/Rome:20260329T023000")
    with pytest.raises(Invalid, match="did you mean Europe/Paris"):
        make(now=NOW, rrule=paris.replace("Paris", "Pariss"))


def test_until_and_count_end_it() -> None:
    """A2: UNTIL is inclusive; a date means all of that day; COUNT counts from DTSTART."""
    start = "DTSTART:20260101T090000\nRRULE:FREQ=DAILY"
    assert len(_fires(99, rrule=f"{start};UNTIL=20260103T090000")) == 3
    assert len(_fires(99, rrule=f"{start};UNTIL=20260103")) == 3
    assert _fires(99, rrule=f"{start};COUNT=3", after=NOW + timedelta(days=1)) == ["2026-01-02 09:00", "2026-01-03 09:00"]
    new_york = "DTSTART;TZID=America/New_York:20260101T200000\nRRULE:FREQ=DAILY;UNTIL=20260103T010000Z"
    assert _fires(99, rrule=new_york) == ["2026-01-01 20:00", "2026-01-02 20:00"]
    with pytest.raises(Invalid, match="not both"):
        make(now=NOW, rrule=f"{start};COUNT=3;UNTIL=20260103")


def test_dates_are_excluded_and_added() -> None:
    """A2: EXDATE by instant or by day, RDATE."""
    text = "DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=5\nEXDATE:20260102T090000,20260104\nRDATE:20260103T120000"
    assert _fires(99, rrule=text) == ["2026-01-01 09:00", "2026-01-03 09:00", "2026-01-03 12:00", "2026-01-05 09:00"]


def test_named_cases() -> None:
    """A2: last working day, every other week, Friday the thirteenth, election day."""
    nine = "BYHOUR=9;BYMINUTE=0;BYSECOND=0"
    assert _fires(2, rrule=f"FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;{nine}") == ["2026-01-30 09:00", "2026-02-27 09:00"]
    weeks = _fires(4, rrule=f"DTSTART:20260106T090000 RRULE:FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=TU,TH;{nine}")
    assert weeks == ["2026-01-06 09:00", "2026-01-08 09:00", "2026-01-20 09:00", "2026-01-22 09:00"]
    assert _fires(2, rrule=f"FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;{nine}") == ["2026-02-13 09:00", "2026-03-13 09:00"]
    election = f"FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8;{nine}"
    assert _fires(2, rrule=f"DTSTART:19961105T090000 RRULE:{election}") == ["2028-11-07 09:00", "2032-11-02 09:00"]
    assert _fires(2, rrule="DTSTART:20260131T090000 RRULE:FREQ=MONTHLY") == ["2026-01-31 09:00", "2026-03-31 09:00"]


def test_a_rule_that_counts_hours_keeps_its_spacing() -> None:
    """A3: FREQ=HOURLY and finer, as a wildcard in cron."""
    made = make(now=NOW, rrule="DTSTART;TZID=America/New_York:20260101T003000 RRULE:FREQ=HOURLY")
    for change in (datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)):
        found = list(islice(fires(made, after=change - timedelta(hours=5)), 10))
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(hours=1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one RRULE"),
        ("FREQ=FORTNIGHTLY", "FREQ: use one of"),
        ("INTERVAL=2", "FREQ: use one of"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL: '0'"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL"),
        ("FREQ=DAILY;COUNT=1000000000", "max_fires"),
        ("FREQ=DAILY;COUNT=10001", "from 1 to 10,000"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR: '24'"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND: '60'"),
        ("FREQ=DAILY;BYDAY=XX", "BYDAY: 'XX'"),
        ("FREQ=DAILY;BYDAY=2MO", "MONTHLY or YEARLY"),
        ("FREQ=MONTHLY;BYDAY=99MO", "BYDAY: '99MO'"),
        ("FREQ=MONTHLY;BYWEEKNO=3", "only with FREQ=YEARLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=3", "is not allowed with FREQ=WEEKLY"),
        ("FREQ=HOURLY;BYMINUTE=1,2;BYSETPOS=1", "only with FREQ=DAILY, WEEKLY, MONTHLY or YEARLY"),
        ("FREQ=DAILY;BYSETPOS=1", "needs another BY part"),
        ("FREQ=DAILY;BYEASTER=0", "'BYEASTER' is not a part"),
        ("FREQ=DAILY;FREQ=DAILY", "given twice"),
        ("FREQ=DAILY;BYHOUR=", "has no value"),
        ("RRULE:FREQ=DAILY\nEXRULE:FREQ=DAILY", "'EXRULE:FREQ=DAILY' is not a known line"),
        ("DTSTART:20260231T000000 FREQ=DAILY", "DTSTART: '20260231T000000' is not a time"),
        ("DTSTART:99990101T000000 FREQ=DAILY", "between 1900 and 2200"),
        ("FREQ=DAILY;UNTIL=20250101T000000Z", "never fires .* within COUNT or UNTIL"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never fires"),
        ("FREQ=MONTHLY;BYDAY=6MO", "never fires"),
        ("FREQ=MONTHLY;BYMONTHDAY=1;BYDAY=2SU", "never fires"),
        ("DTSTART:20260101T000000 FREQ=HOURLY;INTERVAL=2;BYHOUR=1", "never fires"),
        ("DTSTART:20260101T000000 FREQ=SECONDLY;INTERVAL=2;BYSECOND=1", "never fires"),
        ("FREQ=DAILY\n" * 2, "one RRULE"),
        ("FREQ=DAILY EXDATE:" + ",".join(["20260101"] * 501), "more than 500 dates"),
        ("x" * 10_000, "characters; the limit"),
        (7, "give a text"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_have_the_part_and_the_fix(text: Any, message: str) -> None:
    """A2, F2."""
    with pytest.raises(Invalid, match=message) as refused:
        make(now=NOW, rrule=text)
    assert refused.value.field == "rrule"
    assert len(str(refused.value)) < 300


def test_a_period_is_never_cut_by_the_budget_of_a_search() -> None:
    """A3: the last of 14,880 in a month, also if excluded times share one budget; once it was the last before the budget's
    end."""
    days, hours = ",".join(map(str, range(1, 32))), ",".join(map(str, range(24)))
    minutes = ",".join(str(3 * n) for n in range(20))
    rule = f"DTSTART:20260101T000000 FREQ=MONTHLY;BYMONTHDAY={days};BYHOUR={hours};BYMINUTE={minutes};BYSETPOS=-1"
    plain, silent = make(now=NOW, rrule=rule), make(now=NOW, rrule=rule, exclude=["2031-01-01"])
    for after in (datetime(2026, 11, 30, 23, 57, tzinfo=UTC), datetime(2026, 12, 12, 5, tzinfo=UTC)):
        assert next_fire(plain, after=after) == datetime(2026, 12, 31, 23, 57, tzinfo=UTC)
        assert next_fire(silent, after=after) == datetime(2026, 12, 31, 23, 57, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "DTSTART:19700101T000000 FREQ=SECONDLY",
        "DTSTART:19700101T000000 FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        "DTSTART:20260101T000000 FREQ=SECONDLY;INTERVAL=2;BYSECOND=1",
        "FREQ=SECONDLY;COUNT=10000",
        "DTSTART:20260101T000000 FREQ=SECONDLY;INTERVAL=7;BYHOUR=9;BYMINUTE=0;BYSECOND=0;COUNT=10000",
        "FREQ=DAILY;BYDAY=MO;COUNT=10000",
        "FREQ=MONTHLY;BYDAY=6MO",
        "FREQ=MONTHLY;BYMONTHDAY=1;BYDAY=2SU",
        "FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6",
        "FREQ=YEARLY;BYYEARDAY=366;BYMONTH=1;BYDAY=MO",
        "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=366",
        f"FREQ=YEARLY;BYMONTH=1,2,3,4,5,6,7,8,9,10,11,12;BYHOUR={','.join(map(str, range(24)))};BYSETPOS=-1",
        f"FREQ=YEARLY;BYDAY=MO;BYHOUR={','.join(map(str, range(24)))};BYMINUTE={','.join(map(str, range(60)))};BYSETPOS=-1",
        "FREQ=SECONDLY EXDATE:" + ",".join(f"{NOW + timedelta(days=day):%Y%m%d}" for day in range(500)),
        "FREQ=DAILY;" * 700,
    ],
    ids=lambda text: text[:40],
)
def test_a_hostile_rule_costs_little(text: str) -> None:
    """A2: about 30 ms, best of five, without caches; without a budget, seconds."""
    spent = []
    for number in range(5):
        now = NOW + timedelta(seconds=number)  # another anchor, so that no cache helps
        began = time.process_time()
        with suppress(Invalid):
            make(now=now, rrule=text)
        spent.append(time.process_time() - began)
    assert min(spent) < 0.25


@given(st.text(alphabet="FREQ=DAILYSECONDWKHTUM;:,-0123456789 BYPOSETZ\n", max_size=80) | st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_either_parsed_or_rejected(text: str) -> None:
    """A2, F2."""
    with suppress(Invalid):
        make(now=NOW, rrule=text)
