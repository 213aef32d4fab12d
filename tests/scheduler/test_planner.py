"""The planner: every fire once, ahead of its time, even if other nodes plan, edit, pause or die at the same time."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sexton.clock import ManualClock
from sexton.domain import partition
from sexton.domain.schedule import check, jitter_of
from sexton.errors import DatabaseUnavailable, NotAllowedIn
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import plan, recurring_jobs
from sexton.scheduler.planner import REST_S
from sexton.store.work import schedules
from sexton.telemetry.events import FiresMissed, Planned, ServiceFailed
from tests.callers import TESTER
from tests.rig import NOW, Between, Rig
from tests.timetable import Timetable, document

NEW_YORK = ZoneInfo("America/New_York")
EVERY_TEN = {"cron": "*/10 * * * *"}


async def test_a_year_of_half_past_two_in_new_york_is_one_fire_a_day(rig: Rig) -> None:
    """A3, B4: through the real SQL, over three clock changes; on the day of the gap it fires at 03:00."""
    rig.clock = ManualClock(datetime(2026, 1, 1, 12, tzinfo=UTC))
    # One partition for all, because creating 441 takes longer than the test.
    await rig.execute("CREATE TABLE sexton.executions_of_all_days PARTITION OF sexton.executions DEFAULT")
    await rig.execute("DROP FUNCTION sexton.ensure_partitions")
    await rig.execute("CREATE FUNCTION sexton.ensure_partitions(timestamptz) RETURNS void LANGUAGE sql AS 'SELECT'")
    table = Timetable(rig)
    job_id = await table.write(schedule={"cron": "30 2 * * *", "timezone": "America/New_York"})
    while len(table.starts) < 441:
        (next_at, *_) = await table.waiting(job_id)
        rig.move((next_at - table.now).total_seconds())
        await table.schedule()
        await table.work()
    walls = [start.fire_at.astimezone(NEW_YORK) for start in table.starts]
    first = date(2026, 1, 2)
    assert [wall.date() for wall in walls] == [first + timedelta(days=n) for n in range(441)]
    assert {wall.date(): wall.strftime("%H:%M") for wall in walls if wall.strftime("%H:%M") != "02:30"} == {
        date(2026, 3, 8): "03:00",
        date(2027, 3, 14): "03:00",
    }
    assert await table.ledger(job_id) == []


async def test_a_schedule_whose_next_fire_waits_is_not_planned_further_by_another_look(rig: Rig) -> None:
    """B3: the fire of tomorrow is written. A look that comes early must not write the fire of the day after."""
    table = Timetable(rig)
    job_id = await table.write(schedule={"cron": "0 12 * * *"})
    waiting = await table.waiting(job_id)
    for _ in range(3):
        await rig.execute("UPDATE sexton.jobs_recurring SET plan_at = $1", table.now)
        await table.planner.run_once()
    assert (len(waiting), await table.waiting(job_id)) == (1, waiting)


async def test_an_idle_pass_is_one_statement(rig: Rig) -> None:
    """B10: and two more every ten seconds, for runs that no leader has promoted and jobs that failed while they were locked."""
    between = Between(rig.database)
    planner, _ = Timetable(rig).node(database=between)
    for _ in range(5):
        assert await planner.run_once() == REST_S
        rig.move(REST_S)
    assert [name for name in between.statements if name in ("recall", "to_plan")] == ["recall", *["to_plan"] * 5]
    assert len(between.statements) == 7


async def test_two_planners_at_once_write_each_fire_once(rig: Rig) -> None:
    """B2, rule "plan by compare-and-set": two leaders by accident."""
    table = Timetable(rig)
    async with rig.database.transaction() as connection:
        await schedules.submit(connection, [document(schedule={"every": "10s"}) for _ in range(60)], now=NOW)
    both = [table.node(limit=7)[0] for _ in range(2)]

    async def drain(planner: Any) -> None:
        while await planner.run_once() == 0.0:
            pass

    for _ in range(4):
        await asyncio.gather(*(drain(planner) for planner in both))
        rig.move(20)
    rows = await rig.execute("SELECT job_id, fire_at FROM sexton.runs")
    assert len(rows) == len(set(map(tuple, rows)))
    assert sum(event.count for event in rig.of(Planned)) >= 60
    (row,) = await rig.execute("SELECT sum(fire_count) AS planned FROM sexton.jobs_recurring")
    assert len(rows) == row["planned"]


async def test_without_the_compare_and_set_an_executed_fire_is_planned_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """B2, rule "plan by compare-and-set": the unique key is not enough, because rows leave `runs`."""

    async def fire_with_a_slow_rival() -> list[datetime]:
        table = Timetable(rig)
        await table.write()
        rig.move(14 * 60 + 50)
        async with rig.database.connection() as connection:
            seen = await schedules.to_plan(connection, partition.Scan(partition.ALL, 10), now=table.now)
            await table.schedule()
            for wait_s in (10, 15 * 60):
                rig.move(wait_s)
                await table.turn()
            await plan.write(connection, SCHEDULER, seen, now=table.now)  # it was paused for a quarter of an hour in the middle
        await table.turn()
        return [start.fire_at for start in table.starts]

    fires = await fire_with_a_slow_rival()
    assert len(fires) == len(set(fires))
    await rig.execute("DELETE FROM sexton.runs")
    await rig.execute("DELETE FROM sexton.jobs_recurring")
    broken = schedules._SQL["plan"].replace("AND j.plan_cursor_at IS NOT DISTINCT FROM g.cursor_at", "")
    assert broken != schedules._SQL["plan"]
    monkeypatch.setitem(schedules._SQL, "plan", broken)
    fires = await fire_with_a_slow_rival()
    assert len(fires) > len(set(fires)), "the safeguard is not what holds"


async def test_a_lost_reply_to_the_plan_loses_and_doubles_nothing(rig: Rig) -> None:
    """C6, rule "plan by compare-and-set"."""
    between = Between(rig.database)
    table = Timetable(rig, database=between)
    job_id = await table.write()
    rig.move(15 * 60)
    between.lose_reply("plan")
    with pytest.raises(DatabaseUnavailable):
        await table.planner.run_once()
    await table.planner.run_once()
    assert table.minutes(await table.waiting(job_id)) == [15, 30]


async def test_a_plan_of_an_old_version_is_not_written(rig: Rig) -> None:
    """A7, rule "plan by compare-and-set": from a planner that read the job before the edit."""
    table = Timetable(rig)
    job_id = await table.write()
    rig.move(14.9 * 60)
    async with rig.database.connection() as connection:
        seen = await schedules.to_plan(connection, partition.Scan(partition.ALL, 10), now=table.now)
        assert [one.id for one in seen] == [job_id]
        await table.edit(job_id, schedule={"cron": "0 * * * *"})
        assert (await plan.write(connection, SCHEDULER, seen, now=table.now)).ids == []
    assert table.minutes(await table.waiting(job_id)) == [60]


@pytest.mark.parametrize("safeguard", ["there", "taken out"])
async def test_an_edit_that_keeps_the_cursor_still_rejects_an_old_plan(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, safeguard: str
) -> None:
    """A7, rule "plan by compare-and-set": only the version differs. Without the check a run is written that may overlap others,
    which the job no longer allows."""
    if safeguard == "taken out":
        broken = schedules._SQL["plan"].replace("AND j.version = g.version", "")
        assert broken != schedules._SQL["plan"]
        monkeypatch.setitem(schedules._SQL, "plan", broken)
    table = Timetable(rig)
    job_id = await table.write(recurrence={"overlap": {"policy": "parallel"}})
    rig.move(15 * 60)
    await table.work()
    async with rig.database.connection() as connection:
        seen = await schedules.to_plan(connection, partition.Scan(partition.ALL, 10), now=table.now)
        locked = await schedules.lock(connection, job_id)
        await schedules.revise(connection, job_id, document(), now=table.now)
        edited = await schedules.lock(connection, job_id)
        assert locked is not None
        assert edited is not None
        assert (edited.version, edited.cursor_at) == (locked.version + 1, locked.cursor_at)
        written = (await plan.write(connection, SCHEDULER, seen, now=table.now)).ids
    rows = await rig.execute("SELECT overlap FROM sexton.runs WHERE job_id = $1 AND fire_at > $2", job_id, table.now)
    if safeguard == "there":
        assert (written, rows) == ([], [])
    else:
        assert (written, [row["overlap"] for row in rows]) == ([job_id], [2])


async def test_a_rule_that_was_edited_in_plain_sql_is_checked_before_it_is_planned(rig: Rig) -> None:
    """A4: it may look like a rule that was valid before."""
    table = Timetable(rig)
    job_id = await table.write(name="n")
    async with rig.database.connection() as connection:
        wrong = document(name="n", schedule={"cron": "*/15 * * * *", "jitter": {"max": 7200}})
        await schedules.submit(connection, [wrong], now=table.now)
    await table.planner.run_once()
    shown = await table.show(job_id)
    assert (shown.status, shown.over_reason) == ("failed", "its schedule cannot be read: jitter: must be at most 30 minutes")


@pytest.mark.parametrize("change", ["pause", "cancel"])
async def test_a_plan_from_before_a_pause_or_a_cancel_is_not_written(rig: Rig, change: str) -> None:
    """A6, rule "plan by compare-and-set"."""
    table = Timetable(rig)
    job_id = await table.write()
    rig.move(14.9 * 60)
    async with rig.database.connection() as connection:
        seen = await schedules.to_plan(connection, partition.Scan(partition.ALL, 10), now=table.now)
        await (table.pause(job_id) if change == "pause" else rig.cancel(job_id))
        assert (await plan.write(connection, SCHEDULER, seen, now=table.now)).ids == []
    assert await table.live(job_id) == []


async def test_a_node_that_leads_nothing_plans_overdue_schedules(rig: Rig) -> None:
    """B2, rule "any node does overdue work"."""
    table = Timetable(rig)
    job_id = await table.write()
    idle, _ = table.node([])
    rig.move(15 * 60)
    await idle.run_once()
    assert table.minutes(await table.waiting(job_id)) == [15, 30]
    assert rig.of(Planned) == [Planned(1, overdue=True)]


async def test_a_schedule_that_breaks_the_planner_does_not_delay_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Timetable(rig)
    first, second = await table.write(name="cursed"), await table.write()
    plan_of = plan.plan_of

    def curse(seen: schedules.ToPlan, **options: Any) -> schedules.Plan:
        if seen.name == "cursed":
            raise ZeroDivisionError("an error in a handler")
        return plan_of(seen, **options)

    monkeypatch.setattr(plan, "plan_of", curse)
    rig.move(15 * 60)
    await table.planner.run_once()
    assert (len(await table.waiting(first)), len(await table.waiting(second))) == (1, 2)
    await table.planner.run_once()
    assert [event.service for event in rig.of(ServiceFailed)] == ["planner"], "it is put off, not tried in every pass"
    monkeypatch.undo()
    rig.move(61)
    await table.schedule()
    assert len(await table.live(first)) == 2, "it was put off, and neither ended nor forgotten"


async def test_a_rule_that_was_corrected_in_the_meantime_is_not_ended(rig: Rig) -> None:
    """A7, rule "plan by compare-and-set"."""
    table = Timetable(rig)
    async with rig.database.connection() as connection:
        (written,) = await schedules.submit(connection, [document(schedule={"cron": "61 * * * *"})], now=NOW)
        seen = await schedules.to_plan(connection, partition.Scan(partition.ALL, 10), now=NOW)
        await table.edit(written.id)
        await plan.write(connection, SCHEDULER, seen, now=NOW)
    assert (await table.show(written.id)).status == "pending"


# Catch-up


@pytest.mark.parametrize(
    ("policy", "ran", "missed"),
    [
        ("skip", [130], [(10, 120, 12)]),
        ("latest", [120, 130], [(10, 110, 11)]),
        ("all", [100, 110, 120, 130], [(10, 90, 9)]),
    ],
)
async def test_two_hours_of_downtime(rig: Rig, policy: str, ran: list[float], missed: list[tuple[float, ...]]) -> None:
    """B6: a fire every ten minutes, all schedulers down for two hours, including for the planned fire; no storm of fires."""
    table = Timetable(rig)
    recurrence = {"catch_up": {"policy": policy}, "overlap": {"policy": "queue"}}
    job_id = await table.write(schedule=EVERY_TEN, recurrence=recurrence)
    rig.move(125 * 60)
    await table.turn()
    await table.until(131, step_s=30)
    assert table.fire_minutes() == ran
    assert [(*table.minutes([gap.first_at, gap.last_at]), gap.count) for gap in await table.ledger(job_id)] == missed
    assert {gap.status for gap in await table.ledger(job_id)} == {"missed"}
    assert sum(event.count for event in rig.of(FiresMissed)) == missed[0][2]


async def test_a_promoter_that_is_late_by_less_than_a_minute_starts_planned_runs(rig: Rig) -> None:
    """B6: whatever the policy is; the promoter runs, and is only slow."""
    table = Timetable(rig)
    await table.write(schedule=EVERY_TEN, recurrence={"catch_up": {"policy": "skip"}})
    rig.move(10 * 60 + 59)
    await table.turn()
    assert table.fire_minutes() == [10]


async def test_a_fire_every_second_missed_for_a_day_is_one_row(rig: Rig) -> None:
    """B6: no row per missed fire, and no storm of fires."""
    table = Timetable(rig)
    job_id = await table.write(schedule={"every": "1s"})
    rig.move(86_400)
    await table.turn()
    (gap,) = [gap for gap in await table.ledger(job_id) if gap.status == "missed"]
    assert gap.count == 86_400 - 10  # the last ten seconds are on time
    assert len(table.starts) == 1, "they overlap"


@pytest.mark.parametrize(("on_resume", "ran"), [("skip", [70]), ("latest", [60, 70]), ("all", [40, 50, 60, 70])])
async def test_a_resume_catches_up_only_if_asked(rig: Rig, on_resume: str, ran: list[float]) -> None:
    """A6, B6: the default is to skip; the ledger records these fires as paused; no storm of fires."""
    table = Timetable(rig)
    recurrence = {"on_resume": on_resume, "overlap": {"policy": "queue"}, "catch_up": {"policy": "all"}}
    job_id = await table.write(schedule=EVERY_TEN, recurrence=recurrence)
    rig.move(60)
    await table.pause(job_id, note="maintenance", by="ann")
    await table.until(65, step_s=300)
    assert table.starts == []
    await table.resume(job_id)
    await table.until(71, step_s=30)
    assert table.fire_minutes() == ran
    (gap,) = await table.ledger(job_id)
    assert (gap.status, gap.count, *table.minutes([gap.first_at])) == ("paused", 7 - len(ran), 10)


# Changes while it fires


@pytest.mark.parametrize("change", ["edit", "pause", "cancel"])
@pytest.mark.parametrize("state", ["waiting", "ready", "blocked"])
async def test_no_fire_of_an_old_version_starts_after_the_answer(rig: Rig, change: str, state: str) -> None:
    """A5, A6, A7, rule "job row first"."""
    table = Timetable(rig, takes_s=3600)
    job_id = await table.write(payload={"n": 1}, recurrence={"overlap": {"policy": "queue"}})
    if state == "blocked":
        rig.move(15 * 60)
        await table.turn()
    rig.move(15 * 60)
    if state != "waiting":
        await table.schedule()
    assert state in {one for one, _ in await table.live(job_id)}
    before = len(table.starts)
    match change:
        case "edit":
            await table.edit(job_id, payload={"n": 2}, recurrence={"overlap": {"policy": "parallel"}})
        case "pause":
            await table.pause(job_id)
        case _:
            await rig.cancel(job_id)
    await table.schedule()
    claimed = await table.work()
    if change != "edit":
        assert claimed == []
    assert {one.job_version for one in claimed} <= {2}
    if change == "edit" and state != "blocked":
        assert len(claimed) == 1, "an edit loses no fire"
    assert len(table.starts) == before + len(claimed)


async def test_an_edit_that_keeps_the_rule_loses_no_fire_however_long_it_has_waited(rig: Rig) -> None:
    """A7, rule "job row first": workers were down for an hour; the catch-up policy does not apply, because the fires were
    planned in time."""
    table = Timetable(rig)
    recurrence = {"overlap": {"policy": "queue"}, "catch_up": {"policy": "skip"}}
    job_id = await table.write(recurrence=recurrence)
    for _ in range(4):
        rig.move(15 * 60)
        await table.schedule()
    await table.edit(job_id, payload={"n": 2}, recurrence=recurrence)
    for _ in range(4):
        await table.turn()
    assert table.fire_minutes() == [15, 30, 45, 60]
    assert await table.ledger(job_id) == []


async def test_a_claim_before_the_edit_wins_and_its_fire_is_not_repeated(rig: Rig) -> None:
    """A7, rule "job row first": also if jitter let it start, and end, ahead of its nominal time."""
    table = Timetable(rig)
    jittered = {"cron": "*/15 * * * *", "jitter": {"max": 600, "both": True}}
    name = next(n for n in map(str, range(100)) if _offset(jittered, f"default/{n}") < timedelta(minutes=-5))
    job_id = await table.write(schedule=jittered, name=name)
    rig.move(15 * 60 + _offset(jittered, f"default/{name}").total_seconds())
    await table.turn()
    assert table.fire_minutes() == [15]
    assert table.now < NOW + timedelta(minutes=15)
    await table.pause(job_id)
    await table.resume(job_id)
    await table.edit(job_id, schedule={**jittered, "timezone": "Europe/Berlin"}, name=name)
    assert table.minutes(await table.waiting(job_id)) == [30]
    rig.move(3600)
    rig.move(-3600)
    await table.guardian.run_once()
    assert table.minutes(await table.waiting(job_id)) == [30]
    await table.until(31, step_s=30)
    assert table.fire_minutes() == [15, 30]


def _offset(fields: dict[str, Any], seed: str) -> timedelta:
    return jitter_of(check.schedule(now=NOW, seed=seed, **fields), seed)


async def test_a_clock_that_was_set_back_fires_nothing_twice(rig: Rig) -> None:
    """B9: a failover to a server whose clock is behind."""
    table = Timetable(rig)
    job_id = await table.write(schedule=EVERY_TEN)
    await table.until(31, step_s=30)
    rig.move(-15 * 60)
    for _ in range(20):
        rig.move(60)
        await table.turn()
    await table.edit(job_id, schedule=EVERY_TEN, payload={"n": 2})
    await table.until(51, step_s=30)
    assert table.fire_minutes() == [10, 20, 30, 40, 50]


# Its end


async def test_it_may_be_paused_and_edited_until_its_last_fire_has_started(rig: Rig) -> None:
    """A6, A7: `max_fires` and `end_at` end it when the last fire is promoted, not when it is planned."""
    table = Timetable(rig)
    job_id = await table.write(schedule={**EVERY_TEN, "max_fires": 2}, name="twice")
    await table.until(12, step_s=30)
    await table.pause(job_id)
    await table.resume(job_id)
    await table.edit(job_id, schedule={**EVERY_TEN, "max_fires": 2}, name="twice", payload={"n": 2})
    again = await table.write(schedule={**EVERY_TEN, "max_fires": 2}, name="twice", payload={"n": 2})
    assert again == job_id, "its name is taken until it is over"
    await table.until(60, step_s=30)
    assert table.fire_minutes() == [10, 20]
    assert (await table.show(job_id)).status == "completed"
    with pytest.raises(NotAllowedIn):
        await table.pause(job_id)


async def test_the_last_fire_is_not_lost_to_downtime(rig: Rig) -> None:
    """B6."""
    table = Timetable(rig)
    job_id = await table.write(schedule={**EVERY_TEN, "max_fires": 1})
    rig.move(20 * 60)
    await table.turn()
    rig.move(10)
    await table.turn()
    assert table.fire_minutes() == [20]
    assert (await table.show(job_id)).status == "completed"
    assert [(gap.status, gap.count) for gap in await table.ledger(job_id)] == [("missed", 1)]


async def test_two_submissions_under_one_name_are_one_schedule(rig: Rig) -> None:
    """A11, C6: from two processes at once."""

    async def send() -> list[schedules.Written]:
        async with rig.database.transaction() as connection:
            return await recurring_jobs.submit(connection, TESTER, [document(name=f"n{n}") for n in range(20)], now=NOW)

    first, second = await asyncio.gather(send(), send())
    assert [one.id for one in first] == [one.id for one in second]
    assert sorted([first[0].created, second[0].created]) == [False, True]
    (row,) = await rig.execute("SELECT count(*) FROM sexton.runs")
    assert row["count"] == 20
