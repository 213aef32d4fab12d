"""The guardian: no recurring job is forgotten, and pauses end on time."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from sexton.errors import DatabaseUnavailable
from sexton.scheduler.guardian import AGAIN_S, FULL_S, REST_S
from sexton.store.views import locked_tables
from sexton.telemetry.events import Repaired
from tests.rig import Between, Rig
from tests.timetable import Timetable


async def test_a_job_that_no_planner_would_plan_is_found_and_fires_again(rig: Rig) -> None:
    """B7."""
    table = Timetable(rig)
    job_id = await table.write()
    await rig.execute("UPDATE sexton.jobs_recurring SET plan_at = NULL")
    await table.guardian.run_once()
    assert rig.of(Repaired) == [Repaired((job_id,), 0)]
    await table.until(31)
    assert table.fire_minutes() == [15, 30]


async def test_a_cursor_ahead_of_missing_fires_is_set_back(rig: Rig) -> None:
    """B7: by the full check, hourly."""
    table = Timetable(rig)
    job_id = await table.write()
    await table.guardian.run_once()
    await rig.execute("DELETE FROM sexton.runs")
    rig.move(REST_S)
    await table.guardian.run_once()
    assert rig.of(Repaired) == []
    await rig.execute(
        """UPDATE sexton.jobs_recurring
           SET plan_cursor_at = plan_cursor_at + interval '1 day', plan_at = plan_at + interval '1 day'"""
    )
    rig.move(FULL_S)
    await table.guardian.run_once()
    assert rig.of(Repaired) == [Repaired((job_id,), 0)]
    await table.until(76)
    assert table.fire_minutes() == [75]


async def test_after_a_clock_was_set_back_no_fire_is_planned_that_was_decided(rig: Rig) -> None:
    """B3, B9: with the clock set back every cursor looks too far ahead."""
    table = Timetable(rig)
    job_id = await table.write()
    await table.until(61)
    await rig.execute("DELETE FROM sexton.runs")
    rig.clock._now -= timedelta(minutes=50)
    await table.guardian.run_once()
    assert rig.of(Repaired) == [Repaired((job_id,), 0)]
    await table.until(91)
    assert table.fire_minutes() == [15, 30, 45, 60, 75, 90]


async def test_it_counts_late_schedules_and_changes_no_healthy_one(rig: Rig) -> None:
    """B7."""
    table = Timetable(rig)
    job_id = await table.write()
    before = await table.live(job_id)
    assert await table.guardian.run_once() == REST_S
    assert rig.events == []
    rig.move(20 * 60)
    await table.guardian.run_once()
    assert rig.of(Repaired) == [Repaired((), 1)]
    assert await table.live(job_id) == before


async def test_a_locked_schedule_is_late_and_not_to_be_reported(rig: Rig, database_url: str) -> None:
    """C19: `repaired` asks the operator to report it; the lock watcher names a row that is only locked."""
    table = Timetable(rig)
    await table.write(name="held")
    await table.write(name="forgotten")
    rig.move(20 * 60)
    rival = await asyncpg.connect(database_url, server_settings={"application_name": "billing"})
    try:
        await rival.execute("BEGIN; SELECT FROM sexton.jobs_recurring WHERE name = 'held' FOR NO KEY UPDATE")
        await table.guardian.run_once()
        assert rig.of(Repaired) == [Repaired((), 1)]
        await rival.execute("SELECT FROM sexton.jobs_recurring FOR NO KEY UPDATE")
        await table.guardian.run_once()
        assert len(rig.of(Repaired)) == 1
        await rival.execute("ROLLBACK; BEGIN; LOCK TABLE sexton.runs IN SHARE MODE; SELECT pg_sleep(0.01)")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(locked_tables, "HELD_S", 0.0)
            await table.guardian.run_once()
        assert len(rig.of(Repaired)) == 1
    finally:
        await rival.close()
    await table.guardian.run_once()
    assert rig.of(Repaired)[1:] == [Repaired((), 2)], "they were locked, and are free"


async def test_a_pause_ends_by_itself_at_its_time(rig: Rig) -> None:
    """A6: fires before the end of the pause are recorded as paused, fires after it run."""
    table = Timetable(rig)
    job_id = await table.write()
    await table.pause(job_id, resume_at=table.now + timedelta(minutes=29, seconds=30))
    assert await table.guardian.run_once() == REST_S
    rig.move(29 * 60)
    assert await table.guardian.run_once() == 30
    await table.turn()
    assert (await table.show(job_id)).status == "paused"
    rig.move(75)  # the guardian is late: the fire of minute 30 has passed
    await table.guardian.run_once()
    await table.turn()
    assert (await table.show(job_id)).status == "pending"
    assert table.fire_minutes() == [30]
    (gap,) = await table.ledger(job_id)
    assert (gap.status, gap.count) == ("paused", 1)


async def test_a_pause_that_was_extended_in_the_meantime_does_not_end(rig: Rig) -> None:
    """A6: a person changed it between the guardian's query and its update."""
    between = Between(rig.database)
    table = Timetable(rig, database=between)
    job_id: UUID = await table.write()
    await table.pause(job_id, resume_at=table.now + timedelta(minutes=5))

    async def prolong() -> None:
        await table.pause(job_id, resume_at=table.now + timedelta(hours=5))

    rig.move(6 * 60)
    between.after("due_to_resume", prolong)
    await table.guardian.run_once()
    assert (await table.show(job_id)).status == "paused"


async def test_one_that_was_cancelled_while_it_paused_stays_cancelled(rig: Rig) -> None:
    """A5, A6."""
    table = Timetable(rig)
    job_id = await table.write()
    await table.pause(job_id, resume_at=table.now + timedelta(minutes=5))
    await rig.cancel(job_id)
    rig.move(6 * 60)
    await table.guardian.run_once()
    assert (await table.show(job_id)).status == "cancelled"


async def test_the_full_check_is_repeated_soon_if_it_was_cut_short(rig: Rig) -> None:
    """B7: not an hour later."""
    between = Between(rig.database)
    table = Timetable(rig, database=between)
    await table.write()
    between.refuse("unplanned")
    with pytest.raises(DatabaseUnavailable):
        await table.guardian.run_once()
    await table.guardian.run_once()
    assert between.statements.count("unplanned") == 2


async def test_a_job_that_is_locked_does_not_keep_others_paused(rig: Rig) -> None:
    """A6: the guardian retries it soon."""
    table = Timetable(rig)
    held, other = [await table.write() for _ in range(2)]
    for minutes, job_id in enumerate((held, other), 4):
        await table.pause(job_id, resume_at=table.now + timedelta(minutes=minutes))
    rig.move(6 * 60)
    async with rig.database.transaction() as person:
        await person.fetch("SELECT FROM sexton.jobs WHERE id = $1 FOR UPDATE", held)
        assert await table.guardian.run_once() == AGAIN_S
        assert [(await table.show(job_id)).status for job_id in (held, other)] == ["paused", "pending"]
    await table.guardian.run_once()
    assert (await table.show(held)).status == "pending"


async def test_two_pauses_that_end_soon_after_one_another_end_in_time(rig: Rig) -> None:
    """A6."""
    table = Timetable(rig)
    for seconds in (300, 320):
        await table.pause(await table.write(), resume_at=table.now + timedelta(seconds=seconds))
    rig.move(300)
    assert await table.guardian.run_once() == 20
