"""Recurrences around clock changes: what counts, ends, adds and excludes fires, compared with an oracle and by named cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any

import pytest

from sexton.domain.fault import Invalid
from sexton.domain.schedule import Schedule, describe, fires
from sexton.domain.schedule import schedule as make
from sexton.domain.schedule.rule import DstRule

from .oracle import changes
from .rrule_oracle import AROUND, HOUR, MINUTE, drawn, expected, window

ZONES = (
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Dublin",
    "Africa/Casablanca",
    "Antarctica/Troll",  # two hours
    "Pacific/Apia",  # a whole day in 2011
)
NEW_YORK = "America/New_York"
BACK = "DTSTART:20261101T000000 RRULE:FREQ=HOURLY"  # 05:00 Z is 01:00 for the first time, 06:00 Z for the second
FORWARD = "DTSTART:20260308T000000 RRULE:FREQ=HOURLY"


def _fires(rrule: str, *, now: str = "2026-01-01T00:00:00Z", limit: int = 20, **fields: Any) -> list[str]:
    """In UTC."""
    at = datetime.fromisoformat(now)
    made = make(now=at, rrule=rrule, **{"timezone": NEW_YORK, **fields})
    return [f"{one:%d %H:%M}" + (f":{one:%S}" if one.second else "") for one in islice(fires(made, after=at), limit)]


def _agree(seed: int, name: str, change: datetime) -> None:
    rule, seen = drawn(seed, name, change), window(name, change)
    anchor_at = rule.start if rule.start.tzinfo is not None else None
    schedule = Schedule(rrule=rule.text, timezone=name, dst=DstRule(rule.gap, rule.overlap), anchor_at=anchor_at)
    until = change + AROUND - timedelta(hours=3)
    wanted = [at for at in expected(rule, seen) if at <= until]
    try:
        next(fires(schedule, after=change), None)
    except Invalid:  # a rule that fires never or rarely: counting its fires takes too long
        assert rule.count is not None
        assert len(wanted) < rule.count + len(rule.extra) + len(rule.left_out)
        return
    for after in (change - AROUND, change - 40 * MINUTE, change, change + 17 * MINUTE, change + 70 * MINUTE):
        found = list(takewhile(lambda at: at <= until, fires(schedule, after=after)))
        assert found == [at for at in wanted if at > after], (seed, name, change, after, rule)


@pytest.mark.parametrize("name", ZONES)
def test_fires_are_those_found_minute_by_minute(name: str) -> None:
    """A2, A3: COUNT, UNTIL, RDATE and EXDATE, as wall times and in UTC, with every DST rule, from any start of the search."""
    known = changes(name)
    for seed in range(16):
        _agree(seed, name, known[-1 - seed % 6] if name != "Pacific/Apia" else known[seed % len(known)])


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ZONES)
def test_fires_around_many_changes_are_those_found_minute_by_minute(name: str) -> None:
    """A2, A3: as above, with more rules, around every change from 2000 to 2037."""
    for number, change in enumerate(changes(name)):
        for seed in range(60):
            _agree(1000 + 60 * number + seed, name, change)


def test_count_counts_fires_and_not_wall_times() -> None:
    """A2: the hour that occurs twice is two fires, and the one that does not exist is none."""
    assert _fires(f"{BACK};COUNT=5") == ["01 04:00", "01 05:00", "01 06:00", "01 07:00", "01 08:00"]
    assert _fires(f"{FORWARD};COUNT=5") == ["08 05:00", "08 06:00", "08 07:00", "08 08:00", "08 09:00"]
    both = "DTSTART:20261101T013000 RRULE:FREQ=DAILY;COUNT=3"
    assert _fires(both) == ["01 05:30", "02 06:30", "03 06:30"]
    assert _fires(both, dst={"overlap": "both"}) == ["01 05:30", "01 06:30", "02 06:30"]
    missing = "DTSTART:20260307T023000 RRULE:FREQ=DAILY;COUNT=3"
    assert _fires(missing) == ["07 07:30", "08 07:00", "09 06:30"]
    assert _fires(missing, dst={"gap": "skip"}) == ["07 07:30", "09 06:30", "10 06:30"]
    meeting = "DTSTART:20260308T000000 RRULE:FREQ=DAILY;BYHOUR=2;BYMINUTE=0,30;COUNT=3"
    assert _fires(meeting) == ["08 07:00", "09 06:00", "09 06:30"]  # 02:00 and 02:30 are one fire


@pytest.mark.parametrize(
    ("rrule", "wanted"),
    [
        ("DTSTART:20260308T030000 RRULE:FREQ=DAILY;BYHOUR=2;COUNT=2", ["09 06:00", "10 06:00"]),
        ("DTSTART:20260308T030000 RRULE:FREQ=DAILY;BYHOUR=2,3;COUNT=2", ["08 07:00", "09 06:00"]),
        ("DTSTART:20260308T030000 RRULE:FREQ=DAILY;BYHOUR=2;UNTIL=20260309T023000", ["09 06:00"]),
        ("DTSTART:20260308T023000 RRULE:FREQ=DAILY;BYMINUTE=0,15;UNTIL=20260310T000000", ["09 06:00", "09 06:15"]),
        ("DTSTART:20260308T023000 RRULE:FREQ=DAILY;COUNT=2", ["08 07:00", "09 06:30"]),
    ],
)
def test_a_missing_wall_time_before_dtstart_does_not_fire(rrule: str, wanted: list[str]) -> None:
    """A2: 02:00 becomes 03:00, which is not before the start; but 02:00 is."""
    assert _fires(rrule, limit=2) == wanted


def test_a_rule_that_has_only_missing_wall_times_before_dtstart_never_fires() -> None:
    with pytest.raises(Invalid, match="never fires"):
        _fires("DTSTART:20260308T030000 RRULE:FREQ=DAILY;BYHOUR=0,1,2;UNTIL=20260308T050000")


def test_a_fire_that_exdate_excludes_counts() -> None:
    """A2: as in RFC 5545."""
    assert _fires(f"{BACK};COUNT=3 EXDATE:20261101T010000") == ["01 04:00"]


def test_the_first_of_count_is_not_lost_in_the_repeated_hour() -> None:
    """A2: 06:10 Z is in the second pass, and the first has ended."""
    submitted = "2026-11-01T06:10:00Z"
    assert _fires("FREQ=DAILY;COUNT=3", now=submitted) == ["01 06:10:01", "02 06:10:01", "03 06:10:01"]
    assert _fires("FREQ=DAILY;BYHOUR=1;BYMINUTE=40;COUNT=3", now=submitted) == ["01 06:40", "02 06:40", "03 06:40"]
    assert _fires("FREQ=DAILY;BYHOUR=1;BYMINUTE=5;COUNT=2", now=submitted) == ["02 06:05", "03 06:05"]
    first_pass = _fires("DTSTART:20261101T013000 RRULE:FREQ=MINUTELY;INTERVAL=15;COUNT=6", limit=9)
    assert first_pass == ["01 05:30", "01 05:45", "01 06:00", "01 06:15", "01 06:30", "01 06:45"]


def test_until_in_utc_is_an_instant() -> None:
    """A2: it names one of two passes; a wall time names both."""
    assert _fires(f"{BACK};UNTIL=20261101T053000Z") == ["01 04:00", "01 05:00"]
    assert _fires(f"{BACK};UNTIL=20261101T060000Z") == ["01 04:00", "01 05:00", "01 06:00"]
    assert _fires(f"{BACK};UNTIL=20261101T010000") == ["01 04:00", "01 05:00", "01 06:00"]


def test_rdate_in_utc_is_an_instant() -> None:
    """A2: as a wall time it is a fixed time, to which the DST rule applies, whatever the rule beside it."""
    yearly = "DTSTART:20260401T090000 RRULE:FREQ=YEARLY;COUNT=1\nRDATE:"
    assert _fires(yearly + "20261101T063000Z") == ["01 13:00", "01 06:30"]
    assert _fires(yearly + "20261101T053000Z") == ["01 13:00", "01 05:30"]
    assert _fires(yearly + "20261101T013000") == ["01 13:00", "01 05:30"]
    assert _fires(yearly + "20261101T013000", dst={"overlap": "last"}) == ["01 13:00", "01 06:30"]
    hourly = f"{BACK};COUNT=3\nRDATE:20261101T013000,20260308T023000"
    assert _fires(hourly) == ["08 07:00", "01 04:00", "01 05:00", "01 05:30", "01 06:00"]


def test_exdate_in_utc_excludes_one_pass() -> None:
    """A2: as a wall time it excludes both."""
    assert _fires(f"{BACK};COUNT=4 EXDATE:20261101T060000Z") == ["01 04:00", "01 05:00", "01 07:00"]
    assert _fires(f"{BACK};COUNT=4 EXDATE:20261101T010000") == ["01 04:00", "01 07:00"]


def test_the_spacing_across_a_change_is_as_documented() -> None:
    """A3: a rule follows the wall clock; only a rule whose times repeat every hour keeps its spacing."""

    def steps(**rule: Any) -> set[int]:
        made = make(now=datetime(2026, 1, 1, tzinfo=UTC), timezone=NEW_YORK, **rule)
        found: set[int] = set()
        for change in (datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)):
            near = [at for at in islice(fires(made, after=change - 20 * HOUR), 200) if at < change + 24 * HOUR]
            found |= {(later - earlier) // MINUTE for earlier, later in pairwise(near)}
        return found

    assert steps(cron="*/15 * * * *") == {15}
    assert steps(rrule="DTSTART:20260101T000000 FREQ=HOURLY") == {60}
    assert steps(rrule="DTSTART:20260101T000000 FREQ=MINUTELY;INTERVAL=20") == {20}
    assert steps(cron="0 */3 * * *") == {120, 180, 240}
    assert steps(rrule="DTSTART:20260101T000000 FREQ=MINUTELY;INTERVAL=90") == {30, 60, 90}
    assert steps(every="90m") == {90}


def test_zero_slash_n_is_star_slash_n() -> None:
    """A3: also through the changes."""
    for minute, hour in (("0/15", "1"), ("0/30", "2"), ("5", "0/1"), ("0", "00/2")):
        slash = Schedule(cron=f"{minute} {hour} * * *", timezone=NEW_YORK)
        star = Schedule(cron=slash.cron.replace("00/", "*/").replace("0/", "*/"), timezone=NEW_YORK)  # type: ignore[union-attr]
        for day in (datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 10, 31, tzinfo=UTC)):
            assert list(islice(fires(slash, after=day), 60)) == list(islice(fires(star, after=day), 60)), slash.cron


@pytest.mark.parametrize(
    ("rule", "times"),
    [
        ("FREQ=DAILY;BYHOUR=9", {"09:00:00"}),
        ("FREQ=DAILY;BYHOUR=9,17", {"09:00:00", "17:00:00"}),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=30", {"09:30:00"}),
        ("FREQ=HOURLY;BYHOUR=9", {"09:00:00"}),
        ("FREQ=MINUTELY;BYHOUR=9;BYMINUTE=5,6", {"09:05:00", "09:06:00"}),
        ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;", {"09:00:00"}),
        ("FREQ=DAILY", {"12:34:56"}),
        ("FREQ=DAILY;BYHOUR=9;BYSECOND=7", {"09:00:07"}),
    ],
)
def test_an_hour_is_the_full_hour_whenever_the_rule_was_submitted(rule: str, times: set[str]) -> None:
    """A2: RFC 5545 takes minute and second from DTSTART. Without one they are zero, not those of the submission."""
    submitted = datetime(2026, 1, 5, 12, 34, 55, 200_000, tzinfo=UTC)
    for fields in ({}, {"anchor_at": "2026-01-05T12:34:56Z"}, {"start_at": "2026-01-05T12:34:56Z"}):
        made = make(now=submitted, rrule=rule, **fields)  # type: ignore[arg-type]
        assert {f"{at:%H:%M:%S}" for at in islice(fires(made, after=submitted), 8)} == times
        assert make(now=submitted, rrule=made.rrule, anchor_at=made.anchor_at).rrule == made.rrule


def test_with_a_dtstart_minute_and_second_are_its_own() -> None:
    """A2: as in RFC 5545 and dateutil, so that a rule from a calendar has the same meaning here."""
    assert _fires("DTSTART:20260102T093015\nRRULE:FREQ=DAILY;BYHOUR=9,17;COUNT=2", timezone="UTC") == [
        "02 09:30:15",
        "02 17:30:15",
    ]


def test_a_stored_rule_keeps_its_meaning() -> None:
    """A7: an older version stored the rule without minute and second, and an edit of its limits reads it again."""
    anchor = datetime(2026, 1, 5, 12, 34, 56, tzinfo=UTC)
    kept = make(now=anchor, rrule="FREQ=DAILY;BYHOUR=9", anchor_at=anchor, is_known=True)
    assert kept.rrule == "FREQ=DAILY;BYHOUR=9;BYMINUTE=34;BYSECOND=56"
    assert f"{next(fires(kept, after=anchor)):%H:%M:%S}" == "09:34:56"


def test_instants_are_described_as_instants() -> None:
    """A14."""
    words = describe(make(now=datetime(2026, 1, 1, tzinfo=UTC), timezone=NEW_YORK, rrule=f"{BACK};UNTIL=20261101T053000Z"))
    assert words == "Every hour from 2026-11-01 00:00 until 2026-11-01 05:30 UTC, New York time"
