"""Rule "one instant, one fire", for an upgrade of Sexton: fires that an older version planned by its own reading of a rule are
planned again, and fires that have started do not fire again. The release in a plan identifies the older version."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sexton.operations.recurring import replan
from sexton.scheduler.guardian import Guardian
from sexton.store.work import zones
from sexton.telemetry.events import ZonesFollowed
from tests.rig import Rig
from tests.timetable import Timetable
from tests.tzdata import FakeRelease, using

OLD, NEW = FakeRelease("2026f", {}), FakeRelease("2026fb", {})
RDATE = "DTSTART:20261001T090000 RRULE:FREQ=YEARLY\nRDATE:20261101T063000Z"
EARLY, RIGHT = datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
NEW_YORK = "America/New_York"


async def planned(rig: Rig, hour: int, rrule: str = RDATE) -> Timetable:
    """In the night of the clock change, a schedule that the older version has written."""
    rig.move((datetime(2026, 11, 1, hour, tzinfo=UTC) - rig.clock.database_now()).total_seconds())
    table = Timetable(rig)
    with using(OLD):
        await table.guardian.run_once()
        await table.write(name="once", schedule={"rrule": rrule, "timezone": NEW_YORK})
    return table


async def planned_early(rig: Rig) -> Timetable:
    """The older version took 06:30 Z for 01:30 in New York, and planned the first pass. This writes the same plan, and the same
    text."""
    table = await planned(rig, 4, RDATE.replace("T06", "T05"))
    await rig.execute("UPDATE sexton.jobs_recurring SET schedule = jsonb_set(schedule, '{rrule}', to_jsonb($1::text))", RDATE)
    await rig.execute("UPDATE sexton.jobs_recurring SET tzdata = '2026f'")
    return table


async def follow(rig: Rig) -> None:
    """A scheduler of this version starts."""
    guardian = Guardian(rig.database, clock=rig.clock, emit=rig.heard)
    with using(NEW):
        while await guardian.run_once() == 0.0:
            pass


async def waiting(rig: Rig) -> list[datetime]:
    rows = await rig.execute("SELECT fire_at FROM sexton.runs WHERE state = 'waiting' ORDER BY fire_at")
    return [row["fire_at"] for row in rows]


async def test_a_plan_by_an_older_reading_is_planned_again(rig: Rig) -> None:
    """A3, D7: otherwise it would fire an hour early, and again at the right time."""
    table = await planned_early(rig)
    assert await waiting(rig) == [EARLY]
    await follow(rig)
    assert await waiting(rig) == [RIGHT]
    assert rig.of(ZonesFollowed) == [ZonesFollowed("2026fb", 1)]
    with using(NEW):
        await table.until(240)
    assert [start.fire_at for start in table.starts] == [RIGHT]


async def test_what_has_fired_by_an_older_reading_does_not_fire_again(rig: Rig) -> None:
    """A3, D7: the upgrade happens between the two passes of the repeated hour."""
    table = await planned_early(rig)
    with using(OLD):
        rig.move(90 * 60 + 1)
        await table.promoter.run_once()
        await table.work()
    assert [start.fire_at for start in table.starts] == [EARLY]
    await follow(rig)
    with using(NEW):
        await table.until(240)
    assert [start.fire_at for start in table.starts] == [EARLY]


async def test_a_plan_that_both_readings_share_stays(rig: Rig) -> None:
    """D7: only the release is written."""
    await planned(rig, 4, "DTSTART:20261001T090000 RRULE:FREQ=DAILY")
    before = await rig.execute("SELECT id, fire_at FROM sexton.runs")
    await follow(rig)
    assert await rig.execute("SELECT id, fire_at FROM sexton.runs") == before
    assert (await rig.execute("SELECT DISTINCT tzdata FROM sexton.jobs_recurring"))[0]["tzdata"] == "2026fb"
    assert rig.of(ZonesFollowed) == []


async def test_without_comparing_the_reading_it_fires_twice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule "one instant, one fire"."""
    monkeypatch.setattr(replan, "reading_of", lambda version: "")
    table = await planned_early(rig)
    await follow(rig)
    with using(NEW):
        await table.until(240)
    assert [start.fire_at for start in table.starts] == [EARLY, RIGHT]


async def test_an_older_version_leaves_planning_to_this_one(rig: Rig) -> None:
    """D7: its release sorts before this one, so it stops planning until it is upgraded."""
    await planned(rig, 4)
    await follow(rig)
    with using(OLD):
        async with rig.database.connection() as connection:
            assert await zones.take_over(connection) is False


# The minute and second that this version writes into a rule

HOUR = "FREQ=DAILY;BYHOUR=13"
FULL = f"{HOUR};BYMINUTE=0;BYSECOND=0"


async def planned_by_the_minute(rig: Rig) -> Timetable:
    """The older version took 13:37:12 from the anchor."""
    table = Timetable(rig)
    anchor = {"anchor_at": "2026-03-01T12:37:12Z"}
    await table.write(name="daily", schedule={"rrule": f"{HOUR};BYMINUTE=37;BYSECOND=12", **anchor, "max_fires": 9})
    await rig.execute("UPDATE sexton.jobs_recurring SET schedule = jsonb_set(schedule, '{rrule}', to_jsonb($1::text))", HOUR)
    await rig.execute("UPDATE sexton.jobs_recurring SET tzdata = '2026f'")
    return table


async def test_a_rule_that_is_submitted_again_loses_no_fire(rig: Rig) -> None:
    """D7: a worker of this version starts at 13:10 and declares the rule. The fire of today stays as planned, that of tomorrow
    is at the full hour."""
    table = await planned_by_the_minute(rig)
    await table.until(70, step_s=600)
    await table.write(name="daily", schedule={"rrule": FULL, "max_fires": 9})
    await table.until(97, step_s=600)
    await table.until(98)
    await table.until(120, step_s=1320)
    await table.until(2 * 1440 + 120, step_s=3600)
    assert [f"{start.fire_at:%d %H:%M:%S}" for start in table.starts] == ["04 13:37:12", "05 13:00:00", "06 13:00:00"]
    (row,) = await rig.execute("SELECT version, fire_count, schedule->>'rrule' AS rrule FROM sexton.jobs_recurring")
    assert (row["version"], row["rrule"]) == (2, FULL)
    assert row["fire_count"] == 4  # including the planned one


async def test_an_older_version_that_submits_it_again_changes_nothing(rig: Rig) -> None:
    """D7: old and new workers start in any order during a deploy."""
    table = Timetable(rig)
    await table.write(name="daily", schedule={"rrule": FULL})
    for text in (HOUR, f"{HOUR};BYMINUTE=0"):
        await table.write(name="daily", schedule={"rrule": text})
    for text, version in (
        (f"{HOUR};BYMINUTE=30", 2),
        ("FREQ=DAILY", 3),
        (FULL, 4),
        (f"DTSTART:20260301T123712 RRULE:{HOUR}", 5),
    ):
        await table.write(name="daily", schedule={"rrule": text})
        assert (await rig.execute("SELECT version FROM sexton.jobs_recurring"))[0]["version"] == version
