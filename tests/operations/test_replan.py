"""Rule "one instant, one fire": the release of the time zone data is a row in the database, only newer data replan, and a wall
time that has fired does not fire again. By the old data Berlin is one hour ahead of UTC; the new data change that."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sexton.domain.partition import ALL, Scan
from sexton.domain.schedule.zone import Dst, Walls, instants, wall_of
from sexton.errors import DatabaseUnavailable
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import plan, replan
from sexton.scheduler import guardian as guardians
from sexton.scheduler.guardian import FULL_S, REST_S, Guardian
from sexton.store.work import schedules, zones
from sexton.store.work.schedules import STAND_BACK_S
from sexton.telemetry.events import Repaired, ZonesFollowed, ZonesOlder
from tests.rig import NOW, Between, Rig
from tests.timetable import Timetable
from tests.tzdata import FakeRelease, rules, using

ZONE = "Europe/Berlin"
OLD = FakeRelease("2026a", {ZONE: rules(1)})
NEW = FakeRelease("2026b", {ZONE: rules(0)})  # clocks are an hour behind the old data
AHEAD = FakeRelease("2026b", {ZONE: rules(1.75)})
SAME = FakeRelease("2026b", {ZONE: rules(1)})


def at(minute: float, *, day: int = 0) -> datetime:
    return NOW + timedelta(minutes=minute, days=day)


async def planned(rig: Rig, *crons: str, **fields: object) -> Timetable:
    """Schedules as planned by the old data."""
    table = Timetable(rig)
    with using(OLD):
        await table.guardian.run_once()
        for cron in crons:
            await table.write(name=cron, schedule={"cron": cron, "timezone": ZONE}, **fields)
    return table


async def follow(rig: Rig, release: FakeRelease = NEW, *, crash: str | None = None) -> Guardian:
    """A scheduler starts with these data."""
    between = Between(rig.database)
    if crash is not None:
        between.refuse(crash)
    guardian = Guardian(between, clock=rig.clock, emit=rig.heard)
    with using(release), suppress(DatabaseUnavailable):
        while await guardian.run_once() == 0.0:
            pass
    return guardian


async def waiting(rig: Rig) -> list[datetime]:
    rows = await rig.execute("SELECT fire_at FROM sexton.runs WHERE state = 'waiting' ORDER BY fire_at")
    return [row["fire_at"] for row in rows]


async def test_newer_data_move_planned_fires(rig: Rig) -> None:
    """A3, rule "one instant, one fire"."""
    await planned(rig, "0 14 * * *")
    assert await waiting(rig) == [at(60)]
    await follow(rig)
    assert await waiting(rig) == [at(120)]
    assert rig.of(ZonesFollowed) == [ZonesFollowed("2026b", 1)]


async def test_a_wall_time_that_has_fired_does_not_fire_again(rig: Rig) -> None:
    """Rule "one instant, one fire": by the old data, 13:30 in Berlin fired an hour early."""
    table = await planned(rig, "30 13 * * *")
    with using(OLD):
        await table.until(40)
    assert table.fire_minutes() == [30]
    await follow(rig)
    with using(NEW):
        await table.until(180)
    assert table.fire_minutes() == [30]
    assert await waiting(rig) == [at(90, day=1)]


async def test_the_next_fire_is_planned_at_once_and_the_full_check_changes_nothing(rig: Rig) -> None:
    """B7: the full check would set back a cursor ahead of missing fires, and a wall time that has fired would fire again."""
    table = await planned(rig, "30 13 * * *")
    with using(OLD):
        await table.until(31)
    await follow(rig)
    assert await waiting(rig) == [at(90, day=1)]
    await follow(rig)
    assert rig.of(Repaired) == []


async def test_a_wall_time_that_has_fired_stays_fired_if_nothing_was_planned_beyond_it(rig: Rig) -> None:
    """Rule "one instant, one fire": the planner would continue from the cursor, and the cursor is an instant."""
    table = await planned(rig, "10,20,30,40,50 13-14 * * *")
    with using(OLD):
        await table.until(30)
    await rig.execute("DELETE FROM sexton.runs")
    await rig.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = $1", at(30))
    await follow(rig)
    with using(NEW):
        await table.until(121)
    assert table.fire_minutes() == [10, 20, 30, 100, 110]


async def test_a_rule_that_counts_minutes_does_not_change(rig: Rig) -> None:
    """Rule "one instant, one fire": the interval is in real time, independent of wall time."""
    table = await planned(rig, "*/15 * * * *")
    with using(OLD):
        await table.until(20)
    await follow(rig)
    with using(NEW):
        await table.until(61)
    assert table.fire_minutes() == [15, 30, 45, 60]


async def test_a_wall_time_that_is_past_by_the_new_data_is_caught_up(rig: Rig) -> None:
    """B6: 14:00 in Berlin was at minute 15 and not at minute 60."""
    table = await planned(rig, "0 14 * * *")
    rig.move(20 * 60)
    await follow(rig, AHEAD)
    with using(AHEAD):
        await table.turn()
        await table.until(61)
    assert table.fire_minutes() == [15]
    assert table.start_minutes() == [20]


async def test_a_wall_time_that_is_long_past_is_recorded_as_missed(rig: Rig) -> None:
    """B6: neither fired nor forgotten."""
    table = await planned(rig, "0 14 * * *")
    rig.move(50 * 60)
    await follow(rig, AHEAD)
    with using(AHEAD):
        await table.turn()
    rows = await rig.execute("SELECT fire_at, status FROM sexton.executions")
    assert [tuple(row) for row in rows] == [(at(15), "missed")]
    assert await waiting(rig) == [at(15, day=1)]


async def test_wall_times_that_were_recorded_as_missed_do_not_run_an_hour_later(rig: Rig) -> None:
    """B9: 13:20 to 13:40 are one row of the ledger, and none of them fires again."""
    table = await planned(rig, "10,20,30,40,50 13 * * *", recurrence={"catch_up": {"policy": "skip"}})
    rig.move(45 * 60)
    async with rig.database.transaction() as connection:  # as the planner does, before a scheduler takes back minute 10
        with using(OLD):
            seen = await schedules.to_plan(connection, Scan(ALL, 1), now=table.now)
            assert (await plan.write(connection, SCHEDULER, seen, now=table.now)).missed_count == 3
    await follow(rig)
    with using(NEW):
        await table.until(121)
    assert table.fire_minutes() == [110]


async def test_schedules_that_newer_data_do_not_change_stay_the_same(rig: Rig) -> None:
    """Rule "one instant, one fire": if newer data agree, only the release is written."""
    table = await planned(rig, "0 14 * * *", "30 13 * * MON")
    before = await rig.execute("SELECT id, fire_at, due_at, job_version FROM sexton.runs ORDER BY id")
    await follow(rig, SAME)
    assert await rig.execute("SELECT id, fire_at, due_at, job_version FROM sexton.runs ORDER BY id") == before
    assert rig.of(ZonesFollowed) == []
    rows = await rig.execute("SELECT DISTINCT tzdata FROM sexton.jobs_recurring")
    assert [row["tzdata"] for row in rows] == ["2026b"]
    assert table.starts == []


async def test_a_paused_schedule_does_not_fire_again_when_it_is_resumed(rig: Rig) -> None:
    """A6, rule "one instant, one fire"."""
    table = await planned(rig, "30 13 * * *")
    with using(OLD):
        await table.until(40)
        (row,) = await rig.execute("SELECT id FROM sexton.jobs_recurring")
        await table.pause(row["id"])
    await follow(rig)
    assert (await table.show(row["id"])).status == "paused"
    with using(NEW):
        await table.resume(row["id"])
        assert await waiting(rig) == [at(90, day=1)]
        await table.until(180)
    assert table.fire_minutes() == [30]


async def test_a_promoted_run_is_not_taken_back(rig: Rig) -> None:
    """Rule "job row first": a claim that was first wins."""
    table = await planned(rig, "30 13 * * *")
    rig.move(30 * 60)
    with using(OLD):
        await table.schedule()
    await follow(rig)
    with using(NEW):
        await table.until(180)
    assert table.fire_minutes() == [30]


async def test_a_run_that_is_promoted_during_the_replan_has_begun(rig: Rig) -> None:
    """Rules "job row first" and "one instant, one fire": the promotion comes between the query and the taking back."""
    table = await planned(rig, "30 13 * * *")
    rig.move(30 * 60)
    between = Between(rig.database)

    async def promote() -> None:
        await rig.execute("UPDATE sexton.runs SET state = 'ready' WHERE due_at <= $1", rig.clock.database_now())

    between.after("coming", promote)
    with using(NEW):
        await Guardian(between, clock=rig.clock, emit=rig.heard).run_once()
        await table.until(180)
    assert table.fire_minutes() == [30]


@pytest.mark.parametrize(
    "statement", ["take_over", "behind", "lock_behind", "coming", "take_back", "set_cursors", "mark", "of_ids", "plan"]
)
async def test_a_crash_in_the_middle_is_completed_by_the_next_replan(
    rig: Rig, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3, rule "one instant, one fire": at any statement; each schedule is replanned once."""
    monkeypatch.setattr(guardians, "REPLAN_LIMIT", 1)
    await planned(rig, "0 14 * * *", "1 14 * * *", "2 14 * * *")
    await follow(rig, crash=statement)
    await follow(rig)
    assert await waiting(rig) == [at(120), at(121), at(122)]
    assert sum(event.replanned_count for event in rig.of(ZonesFollowed)) == 3


async def test_two_nodes_that_start_at_once_replan_once(rig: Rig) -> None:
    """B4, rule "one instant, one fire"."""
    await planned(rig, "0 14 * * *", "1 14 * * *")
    between = Between(rig.database)

    async def other() -> None:
        await follow(rig)

    between.before("take_over", other)
    with using(NEW):
        guardian = Guardian(between, clock=rig.clock, emit=rig.heard)
        while await guardian.run_once() == 0.0:
            pass
    assert await waiting(rig) == [at(120), at(121)]
    assert rig.of(ZonesFollowed) == [ZonesFollowed("2026b", 2)]


async def test_a_schedule_that_was_locked_in_the_first_pass_is_replanned_in_the_second(rig: Rig) -> None:
    """A person edits it at that moment; without another pass it would fire wrongly until the next full check."""
    await planned(rig, "30 13 * * *")
    guardian = Guardian(rig.database, clock=rig.clock, emit=rig.heard)
    with using(NEW):
        async with rig.database.transaction() as person:
            await person.fetch("SELECT FROM sexton.jobs_recurring FOR UPDATE")
            assert await guardian.run_once() == 0.0
        assert await waiting(rig) == [at(30)], "left to its holder"
        while await guardian.run_once() == 0.0:
            pass
        rig.move(REST_S)
        while await guardian.run_once() == 0.0:
            pass
    assert await waiting(rig) == [at(90)]


async def test_an_older_node_never_replans_and_logs_that_once(rig: Rig) -> None:
    """Rule "one instant, one fire": a node that was not upgraded undoes nothing."""
    await planned(rig, "0 14 * * *")
    await follow(rig)
    older = await follow(rig, OLD)
    rig.move(FULL_S)
    with using(OLD):
        await older.run_once()
    assert await waiting(rig) == [at(120)]
    (told,) = rig.of(ZonesOlder)
    assert (told.version, told.newest) == ("2026a", "2026b")


async def test_an_older_planner_leaves_planning_to_others_until_it_is_overdue(rig: Rig) -> None:
    """Rules "one instant, one fire" and "any node does overdue work": it plans schedules that no node with newer data has
    planned in time. These nodes correct the plans later."""
    table = await planned(rig, "0 14 * * *")
    await follow(rig)
    rig.move(120 * 60)
    await rig.execute("DELETE FROM sexton.runs")
    await rig.execute("UPDATE sexton.jobs_recurring SET plan_at = $1, plan_cursor_at = $1", at(120))
    with using(OLD):
        rig.move(STAND_BACK_S - 1)
        await table.planner.run_once()
        assert await waiting(rig) == []
        rig.move(1)
        await table.planner.run_once()
        assert await waiting(rig) == [at(60, day=1)]
    await follow(rig)
    assert await waiting(rig) == [at(120, day=1)]


async def test_a_submission_with_older_data_leaves_the_planning_to_others(rig: Rig) -> None:
    """Rule "one instant, one fire": from an API that was not upgraded yet."""
    table = Timetable(rig)
    await follow(rig)
    with using(OLD):
        await table.write(schedule={"cron": "0 14 * * *", "timezone": ZONE})
    assert await waiting(rig) == []
    with using(NEW):
        await table.planner.run_once()
    assert await waiting(rig) == [at(120)]


async def test_a_slow_planner_with_older_data_writes_nothing(rig: Rig) -> None:
    """Rules "plan by compare-and-set" and "one instant, one fire": it read the schedule before the newer data came. These
    changed nothing, so the cursor is the same."""
    await planned(rig, "0 14 * * *")
    await rig.execute("DELETE FROM sexton.runs")
    await rig.execute("UPDATE sexton.jobs_recurring SET plan_at = $1, plan_cursor_at = $1", NOW)
    between = Between(rig.database)

    async def newer() -> None:
        await follow(rig)

    between.after("to_plan", newer)
    table = Timetable(rig, database=between)
    with using(OLD):
        await table.planner.run_once()
    assert await waiting(rig) == []
    with using(NEW):
        await table.planner.run_once()
    assert await waiting(rig) == [at(120)]


async def test_without_newer_data_the_check_is_one_comparison(rig: Rig) -> None:
    """Rule "one instant, one fire": at start, and hourly."""
    await planned(rig, "0 14 * * *")
    between = Between(rig.database)
    guardian = Guardian(between, clock=rig.clock, emit=rig.heard)
    with using(OLD):
        await guardian.run_once()
        assert between.statements.count("newest") == 1
        assert not {"take_over", "coming", "mark"} & set(between.statements)
        between.statements.clear()
        rig.move(REST_S)
        await guardian.run_once()
        assert not {"newest", "behind"} & set(between.statements)


async def test_a_schedule_from_before_the_release_was_recorded_is_replanned_too(rig: Rig) -> None:
    """Rule "one instant, one fire": after an upgrade of Sexton; then it is unknown which wall times have fired."""
    await planned(rig, "0 14 * * *")
    await rig.execute("UPDATE sexton.jobs_recurring SET tzdata = ''")
    await rig.execute("DELETE FROM sexton.tzdata")
    await follow(rig)
    assert await waiting(rig) == [at(120)]


async def test_a_planner_that_runs_before_the_guardian_replans_the_schedules_it_plans(rig: Rig) -> None:
    """Rule "one instant, one fire": otherwise it would continue from an instant, and the wall time that fired there would fire
    again."""
    table = await planned(rig, "10,20,30,40,50 13-14 * * *")
    with using(OLD):
        await table.until(30)
    await rig.execute("DELETE FROM sexton.runs")
    await rig.execute("UPDATE sexton.jobs_recurring SET plan_cursor_at = $1, plan_at = $1", at(30))
    with using(NEW):
        await table.planner.run_once()
        assert await waiting(rig) == [at(100)]
        await table.until(121)
    assert table.fire_minutes() == [10, 20, 30, 100, 110]


async def test_an_hourly_rule_skips_the_hours_that_have_fired(rig: Rig) -> None:
    """Rule "one instant, one fire": the planned run is a fire by the new data too, but of a wall time that has fired."""
    table = await planned(rig, "0 0-23 * * *")
    with using(OLD):
        await table.until(70)  # 14:00, at minute 60
    await follow(rig)
    with using(NEW):
        await table.until(181)
    assert table.fire_minutes() == [60, 180]


async def test_a_resume_with_older_data_is_replanned_by_the_next_planner(rig: Rig) -> None:
    """Rule "one instant, one fire": a pause that ends by itself on a node that was not upgraded yet."""
    table = await planned(rig, "10,20,30,40,50 13-14 * * *")
    (row,) = await rig.execute("SELECT id FROM sexton.jobs_recurring")
    with using(OLD):
        await table.pause(row["id"])
    await follow(rig)
    with using(OLD):
        await table.resume(row["id"])
        rig.move(10 * 60)
        await table.turn()
    with using(NEW):
        await table.until(101)
    assert table.fire_minutes() == [10, 80, 90, 100]


@pytest.mark.parametrize("change", ["edit", "resume"])
async def test_an_edit_with_newer_data_replans_before_it_plans(rig: Rig, change: str) -> None:
    """Rule "one instant, one fire": by an API that was upgraded before the schedulers."""
    table = await planned(rig, "30 13 * * *")
    (row,) = await rig.execute("SELECT id FROM sexton.jobs_recurring")
    with using(OLD):
        await table.until(40)
        if change == "resume":
            await table.pause(row["id"])
    with using(NEW):
        if change == "resume":
            await table.resume(row["id"])
        else:
            rule = {"cron": "30 13 * * *", "timezone": ZONE}
            await table.edit(row["id"], name="30 13 * * *", schedule=rule, payload={"n": 2})
        await table.until(180)
    assert table.fire_minutes() == [30]
    assert await waiting(rig) == [at(90, day=1)]


async def test_outdated_schedules_are_found_in_the_order_of_ids_and_in_batches(rig: Rig) -> None:
    """Rule "lock in id order"."""
    table = await planned(rig, *(f"{minute} 14 * * *" for minute in range(5)))
    seen = []
    after = zones.FIRST
    with using(NEW):
        while True:
            async with rig.database.transaction() as connection:
                if not (behind := await zones.behind(connection, after=after, limit=2)):
                    break
                assert await replan.replan(connection, SCHEDULER, behind, now=table.now) == behind
            seen.append(len(behind))
            after = behind[-1]
    assert seen == [2, 2, 1]
    assert await waiting(rig) == [at(120 + minute) for minute in range(5)]


# Tests that remove a safeguard


async def test_without_the_release_in_the_compare_and_set_older_data_win(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `test_a_slow_planner_with_older_data_writes_nothing`."""
    broken = schedules._SQL["plan"].replace("AND j.tzdata IS NOT DISTINCT FROM g.tzdata", "")
    assert broken != schedules._SQL["plan"]
    monkeypatch.setitem(schedules._SQL, "plan", broken)
    with pytest.raises(AssertionError, match=r"== \[\]"):
        await test_a_slow_planner_with_older_data_writes_nothing(rig)


async def _fires_through_a_gap(rig: Rig) -> list[datetime]:
    """02:00, 02:30 and 03:00 in New York are one instant on the day of the change: one of three fires. All are within the
    planner's horizon."""
    rig.move((datetime(2026, 3, 8, 6, 59, 30, tzinfo=UTC) - rig.clock.database_now()).total_seconds())
    table = Timetable(rig)
    await table.write(schedule={"cron": "0,30 2,3 * * *", "timezone": "America/New_York", "max_fires": 3})
    await table.until(24 * 60, step_s=900)
    return [start.fire_at for start in table.starts]


async def test_wall_times_that_resolve_to_one_instant_are_one_fire(rig: Rig) -> None:
    """A3, rule "one instant, one fire": it counts once towards `max_fires`."""
    fires = await _fires_through_a_gap(rig)
    assert [f"{at:%d %H:%M}" for at in fires] == ["08 07:00", "08 07:30", "09 06:00"]


async def test_without_that_rule_a_gap_uses_up_fires(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule "one instant, one fire"."""

    def each(walls: Walls, where: ZoneInfo, dst: Dst, after: datetime) -> Iterator[datetime]:
        found = (instant for wall in walls(wall_of(where, after)) for instant in instants(where, wall, dst))
        return (instant for instant in found if instant > after)

    monkeypatch.setattr(importlib.import_module("sexton.domain.schedule.fires"), "resolve", each)
    assert len(await _fires_through_a_gap(rig)) == 1
