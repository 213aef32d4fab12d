"""Cron lines of other programs: which are rejected, and which are accepted with both readings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule import dialects, fires
from sexton.domain.schedule import schedule as make
from sexton.domain.schedule.cron_text import parse
from sexton.domain.schedule.dialects import readings

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def _warnings(cron: str, **fields: Any) -> list[str]:
    return dialects.warnings(make(now=NOW, cron=cron, **fields), after=NOW)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("0 0 12 ? * 2", "where 1 is Sunday; here 1 is Monday. Name the dialect"),
        ("0 0 12 ? * 2-6", "'2-6' with \\? is the form of Quartz and AWS"),
        ("0 12 ? * 2", "where 1 is Sunday; here 1 is Monday. Name the dialect \\(cron\\)"),
        ("0 0 12 ? * MON,4", "Quartz"),
        ("0 0 12 ? * 6L", "Quartz"),
        ("0 0 12 ? * 6#3", "Quartz"),
        ("0 0 12 ? * 2 2027", "or write the day by name, such as MON"),
        ("cron(0 10 * * ? *)", "AWS EventBridge.*here write 0 10 \\* \\* \\?$"),
        ("cron(0 10 ? * 2 *)", "here write 0 10 \\? \\* MON$"),
        ("cron(15 10 ? * 2 2027)", "here write 0 15 10 \\? \\* MON 2027$"),
        ("cron(0 10 ? * 1,7 *)", "here write 0 10 \\? \\* SUN,SAT$"),
        ("cron(0 10 ? * 2-6 *)", "here write 0 10 \\? \\* MON-FRI$"),
        ("cron(0 10 ? * 6L *)", "here write 0 10 \\? \\* FRIL$"),
        ("cron(0 10 ? * 3#1 *)", "here write 0 10 \\? \\* TUE#1$"),
        ("0 10 ? * 2/2 *", "here write 0 10 \\? \\* MON/2$"),
        ("CRON(0 10 * * ? *", "AWS EventBridge"),
        ("cron(0 10 ? * MON *)x", "here write 0 10 \\? \\* MON$"),
        ("cron(0 10 ? * MON *) # daily", "here write 0 10 \\? \\* MON$"),
        ("cron(nonsense)", "give only the fields"),
        ("rate(5 minutes)", 'every: "5m"'),
        ("rate(1 hour)", 'every: "1h"'),
        ("rate(soon)", "give every"),
        ("at(2026-11-16T09:00:00)", "run_at"),
        ("15 10 ? * MON-FRI *", "AWS EventBridge, with the year last; here write 15 10 \\? \\* MON-FRI$"),
        ("0 10 * * ? 2027", "here write 0 0 10 \\* \\* \\? 2027"),
    ],
)
def test_a_line_that_is_certainly_of_another_program_is_rejected_with_a_hint(cron: str, message: str) -> None:
    """A2, F2."""
    with pytest.raises(Invalid, match=message) as refused:
        make(now=NOW, cron=cron)
    assert refused.value.field == "cron"
    assert len(str(refused.value)) < 300


def test_a_named_dialect_decides() -> None:
    """A2: Monday in Quartz, Tuesday in cron."""
    quartz = make(now=NOW, cron="0 0 12 ? * 2", dialect="quartz")
    cron = make(now=NOW, cron="0 0 12 ? * 2", dialect="cron")
    assert f"{next(fires(quartz, after=NOW)):%a}" == "Mon"
    assert f"{next(fires(cron, after=NOW)):%a}" == "Tue"
    for by_name in ("0 0 12 ? * MON", "0 0 12 1 * ?", "0 12 ? * TUE", "0 12 1 * ?"):
        make(now=NOW, cron=by_name)
    with pytest.raises(Invalid, match="AWS"):
        make(now=NOW, cron="cron(0 10 * * ? *)", dialect="quartz")


def test_an_ambiguous_line_is_accepted_with_both_readings() -> None:
    """A2, A14: seconds first here, seconds last in croniter, a year last in Temporal; each with its next fires."""
    (warning,) = _warnings("0 0 12 * * 2")
    assert "'0 0 12 * * 2' is read with the seconds first: At 12:00 on Tuesday, UTC (next 2026-11-17 12:00:00Z" in warning
    assert "croniter reads the seconds last: At 00:00:02 on the 12th of the month, UTC (next 2026-12-12 00:00:02Z" in warning
    assert "write '2 0 0 12 * *'. Name the dialect (cron)" in warning
    croniter, temporal = _warnings("0 0 12 * * *")
    assert "'* 0 0 12 * *'" in croniter
    assert "Temporal reads the year last: At 00:00 on the 12th of the month, UTC (next 2026-12-12 00:00:00Z" in temporal
    (every_minute,) = _warnings("* * * * * *")  # every second with seconds last as well
    assert "Temporal reads the year last: Every minute" in every_minute
    (seven,) = _warnings("0 0 12 * * 2 2027")
    assert "'2 0 0 12 * * 2027'" in seven


@pytest.mark.parametrize(
    "cron", ["0 12 * * 2", "0 0 9 * * MON-FRI", "0 0 12 ? * MON", "@daily", "0 0 12 ? * MON 2027", "H H * * *"]
)
def test_an_unambiguous_line_has_no_warning(cron: str) -> None:
    """A2: a name fits only one field."""
    assert _warnings(cron) == []
    assert make(now=NOW, cron=cron, dialect="strict").dialect == "cron"


def test_naming_the_dialect_turns_the_warning_off_and_strict_rejects() -> None:
    """A2."""
    for cron in ("0 0 12 * * 2", "0 0 12 * * *", "0 0 12 * * 2 2027"):
        assert _warnings(cron, dialect="cron") == []
        with pytest.raises(
            Invalid, match=r"read with the seconds first here; croniter reads .*name dialect cron to keep"
        ) as refused:
            make(now=NOW, cron=cron, dialect="strict")
        assert str(refused.value).count("reads") == len(readings(cron))
    with pytest.raises(Invalid, match="Quartz"):
        make(now=NOW, cron="0 0 12 ? * 2", dialect="strict")
    assert dialects.warnings(make(now=NOW, rrule="FREQ=DAILY"), after=NOW) == []


def test_a_line_that_restricts_both_days_shows_what_spring_reads() -> None:
    """A2: with six fields, as Spring writes them."""
    (warning,) = _warnings("0 0 0 13 * FRI")
    assert "matches either" not in warning
    assert (
        "'0 0 0 13 * FRI' fires on days that match either day field: At 00:00 on the 13th of the month or on Friday" in warning
    )
    assert "(next 2026-11-20 00:00:00Z" in warning
    assert "Spring fires only on days that match both" in warning
    assert "(next 2026-11-13" not in warning
    assert "(next 2027-08-13 00:00:00Z, 2028-10-13 00:00:00Z), and Quartz refuses the line" in warning
    rule = warning.partition("write rrule '")[2].partition("'")[0]
    assert rule == "FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR;BYHOUR=0;BYMINUTE=0;BYSECOND=0"
    assert f"{next(fires(make(now=NOW, rrule=rule), after=NOW)):%Y-%m-%d}" == "2027-08-13"
    assert _warnings("0 0 0 13 * FRI", dialect="cron") == []
    with pytest.raises(Invalid, match=r"either day field here; Spring .* write rrule 'FREQ=MONTHLY;.*name dialect cron"):
        make(now=NOW, cron="0 0 0 13 * FRI", dialect="strict")


@pytest.mark.parametrize(
    "cron", ["0 0 0 LW * FRI", "0 0 0 13 * FRI#2", "0 0 */2 13 * FRI", "0 H 0 13 * FRI", "0-59 0-59 0 13 * FRI"]
)
def test_a_line_for_both_days_that_no_short_rule_expresses_says_so(cron: str) -> None:
    """A2."""
    (warning,) = _warnings(cron)
    assert "If you mean both, write an rrule. Name" in warning


@pytest.mark.parametrize("cron", ["0 0 13 * FRI", "0 0 0 */2 * FRI", "0 0 0 13 * ?", "0 0 0 13 * *", "0 0 0 ? * FRI"])
def test_a_line_that_others_read_alike_has_no_warning_about_its_days(cron: str) -> None:
    """A2: five fields are cron's own; and with a field that starts with * both must match here too."""
    assert [warning for warning in _warnings(cron) if "either" in warning] == []


def test_a_stored_line_keeps_its_meaning() -> None:
    """A7: an older version accepted it, and an edit of its limits does not validate it again."""
    assert make(now=NOW, cron="0 0 12 ? * 2", timezone="Europe/Paris", is_known=True).dialect == "cron"


def test_what_a_hint_suggests_is_the_schedule_of_aws() -> None:
    """A2: 10:00 on Monday, as there; in numbers it would be Tuesday."""
    with pytest.raises(Invalid) as refused:
        make(now=NOW, cron="cron(0 10 ? * 2 *)")
    suggested = make(now=NOW, cron=str(refused.value).partition("here write ")[2])
    assert f"{next(fires(suggested, after=NOW)):%a %H:%M}" == "Mon 10:00"


def test_a_line_with_one_reading_is_not_searched_for_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: in a batch of 10,000 the search took longer than all else."""
    made = make(now=NOW, cron="0 9 * * MON-FRI")
    monkeypatch.setattr(dialects, "_shown", None)
    assert dialects.warnings(made, after=NOW) == []


@given(st.lists(st.sampled_from(["0", "5", "12", "*", "*/2", "2027", "MON", "?", "H"]), min_size=5, max_size=7))
def test_the_other_reading_can_be_written_in_this_syntax(words: list[str]) -> None:
    """A2: what a warning suggests is valid, and is another schedule."""
    cron = " ".join(words)
    for other in readings(cron):
        assert parse(other.text) != parse(cron)
        assert sorted(other.text.split()) in (sorted(words), sorted(["0", *words]))
