"""Which fires are planned and which are missed: every policy after downtime; each fire is exactly one of the two."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.domain.fault import Invalid
from sexton.domain.schedule import Schedule, fires
from sexton.domain.schedule.catch_up import CatchUp, Gap, Plan, catch_up, plan

DAWN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
EVERY_TEN = Schedule(cron="*/10 * * * *")


def _plan(schedule: Schedule, cursor_at: datetime, now: datetime, policy: CatchUp, **options: Any) -> Plan:
    return plan(schedule, cursor_at=cursor_at, now=now, horizon_at=now + MINUTE, policy=policy, **options)


def _clock(*instants: datetime) -> list[str]:
    return [f"{at:%H:%M}" for at in instants]


def test_two_hours_of_downtime_under_each_policy() -> None:
    """B6: down from 10:00 to 12:05; a fire every ten minutes; the next one is planned in any case."""
    cursor, now = DAWN + 10 * HOUR, DAWN + 12 * HOUR + 5 * MINUTE

    skipped = _plan(EVERY_TEN, cursor, now, CatchUp("skip"))
    assert _clock(*skipped.fires) == ["12:10"]
    assert skipped.missed == (Gap(cursor + 10 * MINUTE, DAWN + 12 * HOUR, 12, False, "skipped"),)

    latest = _plan(EVERY_TEN, cursor, now, CatchUp("latest"))
    assert _clock(*latest.fires) == ["12:00", "12:10"]
    assert latest.missed == (Gap(cursor + 10 * MINUTE, DAWN + 11 * HOUR + 50 * MINUTE, 11, False, "superseded"),)

    everything = _plan(EVERY_TEN, cursor, now, CatchUp("all"))
    assert _clock(*everything.fires) == ["11:40", "11:50", "12:00", "12:10"]
    assert everything.missed == (Gap(cursor + 10 * MINUTE, DAWN + 11 * HOUR + 30 * MINUTE, 9, False, "beyond_window"),)

    bounded = _plan(EVERY_TEN, cursor, now, CatchUp("all", window_s=5400, max_catch_up=2))
    assert _clock(*bounded.fires) == ["11:50", "12:00", "12:10"]
    assert [(*_clock(gap.first, gap.last), gap.count, gap.reason) for gap in bounded.missed] == [
        ("10:10", "10:30", 3, "beyond_window"),
        ("10:40", "11:40", 7, "over_limit"),
    ]
    assert {found.cursor_at for found in (skipped, latest, everything, bounded)} == {DAWN + 12 * HOUR + 10 * MINUTE}


def test_the_latest_fire_is_missed_if_it_is_older_than_the_window() -> None:
    """B6: a daily job, down for the night it should have fired in, up eight hours later."""
    daily = Schedule(cron="0 2 * * *")
    found = _plan(daily, DAWN, DAWN + 10 * HOUR, CatchUp("latest"))
    assert found.missed == (Gap(DAWN + 2 * HOUR, DAWN + 2 * HOUR, 1, False, "beyond_window"),)
    assert found.fires == (DAWN + DAY + 2 * HOUR,)
    assert _plan(daily, DAWN, DAWN + 10 * HOUR, CatchUp("latest", window_s=36_000)).fires[0] == DAWN + 2 * HOUR


def test_a_fire_a_moment_late_is_not_missed() -> None:
    """B6: a scheduler that was down for seconds loses nothing, even if the policy is to skip."""
    for policy in (CatchUp("skip"), CatchUp("latest"), CatchUp("all", window_s=0)):
        found = _plan(Schedule(every_s=2, anchor_at=DAWN), DAWN, DAWN + timedelta(seconds=7), policy)
        assert [(at - DAWN).seconds for at in found.fires[:4]] == [2, 4, 6, 8]
        assert found.missed == ()


def test_the_latest_missed_fire_is_not_caught_up_if_another_is_due_now() -> None:
    """B6: the fire that is due now is the latest, and otherwise two would run together."""
    now = DAWN + 12 * HOUR + timedelta(seconds=5)
    found = _plan(EVERY_TEN, DAWN + 10 * HOUR, now, CatchUp("latest"))
    assert _clock(*found.fires) == ["12:00", "12:10"]
    assert [(*_clock(gap.first, gap.last), gap.reason) for gap in found.missed] == [("10:10", "11:50", "superseded")]


def test_resuming_by_skip_fires_nothing_of_the_pause() -> None:
    """B6, A6: not even a fire that was due a second ago; and no storm of fires afterwards."""
    now = DAWN + 3 * HOUR + timedelta(seconds=1)
    found = _plan(EVERY_TEN, DAWN, now, CatchUp("skip"), on_time=timedelta(0))
    assert found.fires == (DAWN + 3 * HOUR + 10 * MINUTE,)
    assert [(gap.count, gap.reason) for gap in found.missed] == [(18, "skipped")]


def test_planning_again_plans_nothing_twice() -> None:
    """B1, B3: the cursor has passed `now`, so a planned fire waits already; only more time or a farther horizon plans
    another."""
    found = _plan(EVERY_TEN, DAWN, DAWN + MINUTE, CatchUp())
    assert found.fires == (DAWN + 10 * MINUTE,)
    again = _plan(EVERY_TEN, found.cursor_at, DAWN + 2 * MINUTE, CatchUp())
    assert again == Plan((), (), found.cursor_at, is_over=False)
    later = _plan(EVERY_TEN, found.cursor_at, found.cursor_at, CatchUp())
    assert later.fires == (DAWN + 20 * MINUTE,)


def test_the_horizon_is_filled_up_to_a_limit() -> None:
    """B3."""
    dense = Schedule(every_s=1, anchor_at=DAWN)
    found = plan(dense, cursor_at=DAWN, now=DAWN, horizon_at=DAWN + HOUR, policy=CatchUp(), ahead_limit=50)
    assert len(found.fires) == 50
    assert found.cursor_at == DAWN + timedelta(seconds=50)


def test_a_schedule_ends_with_its_last_fire() -> None:
    """B3: by end_at, or by max_fires, where missed fires do not count."""
    ends = msgspec.structs.replace(EVERY_TEN, end_at=DAWN + 20 * MINUTE)
    assert _plan(ends, DAWN, DAWN, CatchUp()).is_over is False
    assert _plan(ends, DAWN + 10 * MINUTE, DAWN + 11 * MINUTE, CatchUp()) == Plan(
        (DAWN + 20 * MINUTE,), (), DAWN + 20 * MINUTE, is_over=True
    )
    gone = _plan(ends, DAWN, DAWN + DAY, CatchUp())
    assert (gone.fires, gone.is_over, gone.missed[0].count) == ((), True, 2)
    twice = msgspec.structs.replace(EVERY_TEN, max_fires=2)
    found = _plan(twice, DAWN, DAWN + 2 * HOUR + MINUTE, CatchUp("latest"))
    assert (_clock(*found.fires), found.is_over) == (["02:00", "02:10"], True)
    assert _plan(twice, DAWN, DAWN + 2 * HOUR, CatchUp("all"), fired_count=1).fires == (DAWN + 90 * MINUTE,)
    assert _plan(twice, DAWN, DAWN + 2 * HOUR, CatchUp("all"), fired_count=2) == Plan((), (), DAWN, is_over=True)


SCHEDULES = [
    EVERY_TEN,
    Schedule(every_s=420, anchor_at=DAWN + 13 * MINUTE),
    Schedule(cron="30 1,2 * * *", timezone="America/New_York"),
    Schedule(cron="*/20 8-17 * * MON-FRI", exclude=("12:00-13:00", "2026-03-09")),
    Schedule(rrule="DTSTART:20260101T000000 RRULE:FREQ=HOURLY;INTERVAL=5"),
    Schedule(cron="0 0 29 2 *"),
]


@given(
    st.sampled_from(SCHEDULES),
    st.floats(0, 300),
    st.floats(0, 5),
    st.sampled_from(["skip", "latest", "all"]),
    st.integers(0, 200_000),
    st.integers(1, 40),
    st.integers(0, 3600),
)
@settings(max_examples=200, deadline=None)
def test_every_fire_is_planned_or_missed_and_never_both(
    schedule: Schedule, begin: float, down: float, policy: Any, window_s: int, max_catch_up: int, horizon_s: int
) -> None:
    """B1, B6: every fire up to the new cursor is decided; planned fires are within their bounds."""
    cursor = DAWN + begin * DAY
    now = cursor + down * DAY
    rule = CatchUp(policy, window_s, max_catch_up)
    found = plan(schedule, cursor_at=cursor, now=now, horizon_at=now + timedelta(seconds=horizon_s), policy=rule)
    everything = list(takewhile(lambda at: at <= found.cursor_at, fires(schedule, after=cursor)))
    in_gaps = [at for gap in found.missed for at in everything if gap.first <= at <= gap.last]
    assert sorted([*found.fires, *in_gaps]) == everything
    assert sum(gap.count for gap in found.missed) == len(in_gaps)
    assert list(found.fires) == sorted(set(found.fires))
    late = [at for at in found.fires if at <= now]
    on_time = [at for at in late if now - at < timedelta(seconds=10)]
    match policy:
        case "skip":
            assert late == on_time
        case "latest":
            assert len(late) <= max(1, len(on_time))
            assert all(now - at <= timedelta(seconds=max(window_s, 10)) for at in late)
        case _:
            assert len(late) - len(on_time) <= max_catch_up
            assert all(now - at <= timedelta(seconds=max(window_s, 10), microseconds=1) for at in late)
    assert found.cursor_at >= cursor
    assert any(at > now for at in found.fires) or found.cursor_at > now or found.is_over


@pytest.mark.parametrize("policy", ["skip", "latest", "all"])
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(every_s=1, anchor_at=DAWN),
        Schedule(cron="* * * * * *"),
        Schedule(cron="* * 9-17 * * MON-FRI", timezone="America/New_York", exclude=("12:00-13:00",)),
        Schedule(rrule="DTSTART:20200101T000000 RRULE:FREQ=SECONDLY"),
    ],
    ids=["every", "cron", "office hours", "rrule"],
)
def test_a_year_of_downtime_of_a_dense_schedule_costs_little(schedule: Schedule, policy: Any) -> None:
    """B6: no storm of fires, no row per missed second, and bounded work."""
    now = DAWN + 365 * DAY
    spent, plans = [], []
    for _ in range(3):
        began = time.process_time()
        plans.append(_plan(schedule, DAWN, now, CatchUp(policy, window_s=40_000_000)))
        spent.append(time.process_time() - began)
    found = plans[0]
    assert min(spent) < 0.5
    assert len(found.fires) <= 220
    assert len(found.missed) == 1
    assert found.missed[0].first == next(fires(schedule, after=DAWN))
    assert found.missed[0].last < now
    if schedule.every_s:
        assert (found.missed[0].count, found.missed[0].at_least) == (365 * 86_400 - sum(at <= now for at in found.fires), False)
    else:
        assert (found.missed[0].count, found.missed[0].at_least) == (1000, True)


def test_the_newest_are_kept_if_there_are_too_many() -> None:
    """B6: exactly that many, exactly the last."""
    for schedule in SCHEDULES[:5]:
        now = DAWN + 100 * DAY
        listed = list(takewhile(lambda at, now=now: at <= now, fires(schedule, after=DAWN)))  # type: ignore[misc]
        found = _plan(schedule, DAWN, now, CatchUp("all", window_s=100 * 86_400, max_catch_up=37))
        kept = [at for at in found.fires if at <= now]
        assert kept == listed[-len(kept) :]
        assert len([at for at in kept if at <= now - timedelta(seconds=10)]) == 37


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"policy": "some"}, "catch_up.policy"),
        ({"window": "long"}, "catch_up.window"),
        ({"max_catch_up": 0}, "catch_up.max_catch_up"),
        ({"max_catch_up": 1001}, "catch_up.max_catch_up"),
        ({"max_catch_up": True}, "catch_up.max_catch_up"),
    ],
    ids=str,
)
def test_an_invalid_policy_is_rejected(fields: dict[str, Any], field: str) -> None:
    """F2."""
    with pytest.raises(Invalid) as refused:
        catch_up(**fields)
    assert refused.value.field == field


@pytest.mark.parametrize("most", [1, 1000])
def test_the_bounds_of_max_catch_up_are_valid(most: int) -> None:
    assert catch_up("all", max_catch_up=most).max_catch_up == most


def test_a_policy_is_stored_without_its_defaults() -> None:
    """B6: default `latest` within 30 minutes."""
    assert msgspec.json.encode(catch_up()) == b"{}"
    assert msgspec.json.encode(catch_up("all", window="2h")) == b'{"policy":"all","window":7200.0}'
    assert len(list(islice(fires(EVERY_TEN, after=DAWN), 3))) == 3
