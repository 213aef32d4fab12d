"""A fire that was due becomes a run or a row in history, however its schedule ends or changes."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from sexton.operations.cancel import cancel as cancel_job
from tests.callers import TESTER
from tests.rig import Rig
from tests.timetable import Timetable, document

QUEUE = {"overlap": {"policy": "queue"}}
QUARTER_S = 15 * 60


async def cancel(table: Timetable, job_id: UUID, reason: str = "not wanted any more") -> int:
    async with table.rig.database.transaction() as connection:
        return (await cancel_job(connection, TESTER, job_id, reason=reason, now=table.now)).ended_count


async def history(table: Timetable, job_id: UUID) -> list[tuple[float, str, str | None]]:
    """Minute, status and reason of the fires that no worker started."""
    rows = await table.rig.execute(
        "SELECT fire_at, status, reason FROM sexton.executions WHERE job_id = $1 AND token = 0 ORDER BY fire_at, id", job_id
    )
    return [(table.minutes([row["fire_at"]])[0], row["status"], row["reason"]) for row in rows]


async def states(table: Timetable, job_id: UUID) -> list[tuple[float, str]]:
    live = await table.live(job_id)
    return list(zip(table.minutes([fire_at for _, fire_at in live]), [state for state, _ in live], strict=True))


async def queued(rig: Rig, **fields: Any) -> tuple[Timetable, UUID]:
    """At minute 46: the fire of minute 15 runs, those of 30 and 45 are queued, that of 60 is planned."""
    table = Timetable(rig, takes_s=6 * 3600)
    job_id = await table.write(recurrence=QUEUE, **fields)
    await table.until(45, step_s=QUARTER_S)
    rig.move(60)
    assert await states(table, job_id) == [(15, "running"), (30, "blocked"), (45, "blocked"), (60, "waiting")]
    return table, job_id


async def test_a_cancelled_schedule_records_its_queued_fires(rig: Rig) -> None:
    """A5, A9. The fire of minute 60 was not due: it leaves no row."""
    table, job_id = await queued(rig)
    assert await cancel(table, job_id) == 3
    assert await history(table, job_id) == [
        (30, "cancelled", "not wanted any more"),
        (45, "cancelled", "not wanted any more"),
    ]
    assert await states(table, job_id) == [(15, "running")]


@pytest.mark.parametrize("promoted", [False, True])
async def test_a_cancelled_schedule_records_its_due_fire(rig: Rig, promoted: bool) -> None:
    table = Timetable(rig)
    job_id = await table.write()
    await table.until(14, step_s=QUARTER_S)
    rig.move(61)
    if promoted:
        await table.schedule()
    assert (15, "ready" if promoted else "waiting") in await states(table, job_id)
    await cancel(table, job_id)
    assert await history(table, job_id) == [(15, "cancelled", "not wanted any more")]
    assert await states(table, job_id) == []


async def test_a_fire_that_waits_for_a_limit_is_recorded_too(rig: Rig) -> None:
    table = Timetable(rig)
    job_id = await table.write(policy={"limit": {"key": "one", "running": 1}})
    await rig.execute(
        "INSERT INTO sexton.limits (key, running, updated_at) VALUES ('one', 1, $1) ON CONFLICT DO NOTHING", table.now
    )
    await table.until(14, step_s=QUARTER_S)
    rig.move(61)
    await table.schedule()
    await rig.execute("UPDATE sexton.runs SET state = 'parked' WHERE state = 'ready'")
    await cancel(table, job_id)
    assert [row[:2] for row in await history(table, job_id)] == [(15, "cancelled")]


async def test_fires_during_a_pause_are_recorded_when_the_schedule_is_cancelled(rig: Rig) -> None:
    """The pause took back the queued fires of minutes 30 and 45, and 60 became due during the pause."""
    table, job_id = await queued(rig)
    await table.pause(job_id, note="maintenance")
    rig.move(QUARTER_S)
    await cancel(table, job_id)
    assert [row[:2] for row in await history(table, job_id)] == [(30, "paused")]
    (row,) = await rig.execute(
        "SELECT result->>'count' AS count FROM sexton.executions WHERE job_id = $1 AND token = 0", job_id
    )
    assert int(row["count"]) == 3
    assert (await table.show(job_id)).note == "maintenance"


async def test_fires_without_a_plan_are_recorded(rig: Rig) -> None:
    """No scheduler ran for an hour. Catch-up would start the latest fire: that one was cancelled, the others were missed."""
    table = Timetable(rig)
    job_id = await table.write(recurrence={"catch_up": {"policy": "latest"}})
    await table.turn()
    rig.move(76 * 60)
    await cancel(table, job_id)
    assert [row[:2] for row in await history(table, job_id)] == [(15, "cancelled"), (30, "missed"), (75, "cancelled")]
    (gap,) = await table.ledger(job_id)
    assert table.minutes([gap.first_at, gap.last_at]) == [30, 60]


async def test_a_schedule_whose_rule_cannot_be_read_records_its_due_fire(rig: Rig) -> None:
    table = Timetable(rig)
    job_id = await table.write()
    await table.until(14, step_s=QUARTER_S)
    rig.move(61)
    await rig.execute("UPDATE sexton.jobs_recurring SET schedule = '[]', plan_at = $2 WHERE id = $1", job_id, table.now)
    await table.planner.run_once()
    assert (await table.show(job_id)).status == "failed"
    ((minute, status, reason),) = await history(table, job_id)
    assert (minute, status) == (15, "cancelled")
    assert reason is not None
    assert reason.startswith("its schedule cannot be read")


async def test_an_edit_of_the_rule_keeps_the_fires_that_are_due(rig: Rig) -> None:
    """They move to the new version. Fires that were planned and not due follow the new rule."""
    table, job_id = await queued(rig)
    await table.edit(job_id, payload={"n": 2}, recurrence=QUEUE, schedule={"cron": "7 * * * *"})
    assert await states(table, job_id) == [(15, "running"), (30, "blocked"), (45, "blocked"), (67, "waiting")]
    assert {row["job_version"] for row in await rig.execute("SELECT job_version FROM sexton.runs WHERE token = 0")} == {2}
    assert await history(table, job_id) == []


async def test_a_due_fire_that_was_not_promoted_survives_an_edit_of_the_rule(rig: Rig) -> None:
    """Also if no scheduler runs for longer than a promotion may be late: the new rule has no fire at minute 15."""
    table = Timetable(rig)
    job_id = await table.write()
    await table.until(14, step_s=QUARTER_S)
    rig.move(61)
    await table.edit(job_id, schedule={"cron": "7 * * * *"})
    rig.move(600)
    await table.turn()
    assert table.fire_minutes() == [15]


async def test_a_schedule_that_reaches_its_end_still_runs_its_queued_fires(rig: Rig) -> None:
    table = Timetable(rig, takes_s=40 * 60)
    await table.write(recurrence=QUEUE, schedule={"cron": "*/15 * * * *", "max_fires": 3})
    await table.until(47, step_s=QUARTER_S)
    await table.until(200, step_s=QUARTER_S)
    assert table.fire_minutes() == [15, 30, 45]


async def test_a_schedule_that_has_ended_records_cancelled_queued_fires(rig: Rig) -> None:
    table, job_id = await queued(rig, schedule={"cron": "*/15 * * * *", "max_fires": 4})
    await table.until(62, step_s=QUARTER_S)
    assert await cancel(table, job_id) == 3
    assert [row[:2] for row in await history(table, job_id)] == [(30, "cancelled"), (45, "cancelled"), (60, "cancelled")]


async def test_a_pause_records_fires_of_an_earlier_rule(rig: Rig) -> None:
    """The resume plans by the new rule, which does not have them."""
    table, job_id = await queued(rig)
    await table.edit(job_id, recurrence=QUEUE, schedule={"cron": "7 * * * *"})
    await table.pause(job_id)
    assert [row[:2] for row in await history(table, job_id)] == [(30, "paused"), (45, "paused")]
    await table.resume(job_id)
    assert await states(table, job_id) == [(15, "running"), (67, "waiting")]


EVERY = {"schedule": {"every": "60s"}, "recurrence": {"catch_up": {"policy": "all"}}}
NIGHTLY = {"schedule": {"cron": "30 4 * * *"}, "recurrence": {"catch_up": {"policy": "all"}}}


async def decided(table: Timetable, job_id: UUID) -> tuple[int, int]:
    """How many of the fires of the old rule will run, and how many history tells of."""
    live = [fire_at for _, fire_at in await table.live(job_id) if fire_at <= table.now]
    return len(live), sum(one.count for one in await table.ledger(job_id))


async def unplanned(rig: Rig, name: str = "n") -> tuple[Timetable, UUID]:
    """Fires every minute, and no planner has planned for ten minutes."""
    table = Timetable(rig)
    job_id = await table.write(name=name, **EVERY)
    await table.planner.run_once()
    rig.move(10 * 60 + 5)
    return table, job_id


@pytest.mark.parametrize("way", ["edit", "submit"])
async def test_an_edit_of_the_rule_decides_about_fires_that_no_planner_has_written(rig: Rig, way: str) -> None:
    table, job_id = await unplanned(rig)
    if way == "edit":
        await table.edit(job_id, name="n", **NIGHTLY)
    else:
        assert await table.write(name="n", **NIGHTLY) == job_id
    ran, told = await decided(table, job_id)
    assert (ran, told) == (10, 0)
    await table.turn()
    assert len(table.starts) == 10
    assert not await table.waiting(job_id) or min(await table.waiting(job_id)) > table.now


@pytest.mark.parametrize("on_resume", ["skip", "all"])
@pytest.mark.parametrize("way", ["edit", "submit"])
async def test_an_edit_of_a_paused_schedule_records_the_fires_of_its_pause(rig: Rig, way: str, on_resume: str) -> None:
    """It stays paused, with its note. Fires of the old rule do not run when it is resumed."""
    table = Timetable(rig)
    recurrence = {"catch_up": {"policy": "all"}, "on_resume": on_resume}
    job_id = await table.write(name="n", schedule={"every": "60s"}, recurrence=recurrence)
    await table.pause(job_id, note="maintenance")
    rig.move(10 * 60 + 5)
    new = {"schedule": {"cron": "30 4 * * *"}, "recurrence": recurrence}
    await (table.edit(job_id, name="n", **new) if way == "edit" else table.write(name="n", **new))
    shown = await table.show(job_id)
    assert (shown.status, shown.note) == ("paused", "maintenance")
    assert await table.live(job_id) == []
    assert await decided(table, job_id) == (0, 10)
    assert {one.status for one in await table.ledger(job_id)} == {"paused"}
    await table.planner.run_once()
    assert await table.live(job_id) == [], "it is still paused"
    await table.resume(job_id)
    await table.turn()
    assert table.starts == []
    assert await decided(table, job_id) == (0, 10)


async def test_an_edit_revives_a_schedule_whose_last_fires_no_planner_planned(rig: Rig) -> None:
    """Its old rule had only five fires, all of them missed."""
    table = Timetable(rig)
    job_id = await table.write(name="n", schedule={"every": "60s", "max_fires": 5}, recurrence={"catch_up": {"policy": "skip"}})
    await table.pause(job_id)
    rig.move(10 * 60 + 5)
    assert await table.write(name="n", **NIGHTLY) == job_id
    assert (await table.show(job_id)).status == "paused"


async def test_an_edit_of_the_rule_in_sql_tells_of_the_time_that_no_planner_planned(rig: Rig) -> None:
    """SQL cannot compute the fires: one row covers all of them."""
    table, job_id = await unplanned(rig)
    planned_until = max(await table.waiting(job_id))
    await rig.execute("SELECT sexton.submit_schedules($1::jsonb, $2)", json.dumps([document(name="n", **NIGHTLY)]), table.now)
    (gap,) = await table.ledger(job_id)
    assert (gap.status, gap.first_at, gap.last_at) == ("missed", planned_until, table.now)
    assert "replaced before they were planned" in gap.reason
    await rig.execute("SELECT sexton.submit_schedules($1::jsonb, $2)", json.dumps([document(name="n", **EVERY)]), table.now)
    assert len(await table.ledger(job_id)) == 1, "the second edit found no further gap"


async def test_an_edit_of_a_rule_that_is_planned_ahead_tells_of_no_gap(rig: Rig) -> None:
    table = Timetable(rig)
    job_id = await table.write(name="n", **NIGHTLY)
    rig.move(60)
    await rig.execute("SELECT sexton.submit_schedules($1::jsonb, $2)", json.dumps([document(name="n", **EVERY)]), table.now)
    await table.edit(job_id, name="n", **NIGHTLY)
    assert await table.ledger(job_id) == []
