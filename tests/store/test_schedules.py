"""Recurring jobs in the store: written, planned by compare-and-set, taken back, admitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.clock import SystemClock
from sexton.domain.outcome import Released, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.errors import Contention, NotAllowedIn, VersionMismatch
from sexton.operations.caller import SCHEDULER, Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import plan as planning
from sexton.operations.recurring import recurring_jobs
from sexton.operations.recurring.recurring_jobs import Pause
from sexton.operations.versions import AtVersion
from sexton.store.postgres.driver_errors import translated_errors
from sexton.store.work import declared, jobs, runs, schedules
from tests.callers import TESTER
from tests.store.support import FLAKY, claim, enlist, finish

if TYPE_CHECKING:
    import asyncpg

    Conn = asyncpg.Connection[Any]

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def after(**span: float) -> datetime:
    return NOON + timedelta(**span)


def document(**fields: Any) -> dict[str, Any]:
    return {"task": "a", "schedule": {"cron": "*/15 * * * *"}, **fields}


async def write(connection: Conn, now: datetime = NOON, **fields: Any) -> UUID:
    async with connection.transaction():
        (written,) = await recurring_jobs.submit(connection, TESTER, [document(**fields)], now=now)
    return written.id


async def fires(connection: Conn, job_id: UUID) -> list[tuple[str, datetime]]:
    rows = await connection.fetch("SELECT state, fire_at FROM sexton.runs WHERE job_id = $1 ORDER BY fire_at", job_id)
    return [(row["state"], row["fire_at"]) for row in rows]


async def plan(connection: Conn, now: datetime) -> planning.Planned:
    seen = await schedules.to_plan(connection, Scan(ALL, 100), now=now)
    return await planning.write(connection, SCHEDULER, seen, now=now)


async def test_its_next_fire_is_written_with_the_job(connection: Conn) -> None:
    """A4, B3."""
    job_id = await write(connection)
    assert job_id.int >> 127 == 1
    assert await fires(connection, job_id) == [("waiting", after(minutes=15))]
    shown = await jobs.show(connection, job_id)
    assert (shown.status, shown.next_fire_at) == ("pending", after(minutes=15))


async def test_the_fire_after_it_is_written_before_it_starts(connection: Conn) -> None:
    """B3: no later than the start of the current one, at its intended time."""
    job_id = await write(connection)
    assert (await plan(connection, after(minutes=14))).ids == []
    assert (await plan(connection, after(minutes=14, seconds=46))).ids == [job_id]
    assert await fires(connection, job_id) == [("waiting", after(minutes=15)), ("waiting", after(minutes=30))]


async def test_only_one_of_two_planners_moves_the_cursor(connection: Conn) -> None:
    """Rule "plan by compare-and-set"."""
    job_id = await write(connection)
    now = after(minutes=15)
    seen = await schedules.to_plan(connection, Scan(ALL, 100), now=now)
    again = await schedules.to_plan(connection, Scan(ALL, 100), now=now)
    assert (await planning.write(connection, SCHEDULER, seen, now=now)).ids == [job_id]
    assert (await planning.write(connection, SCHEDULER, again, now=now)).ids == []
    assert len(await fires(connection, job_id)) == 2


async def test_a_name_exists_once_and_its_schedule_is_updated(connection: Conn) -> None:
    """A11: create or update, in one call."""
    first = await write(connection, name="report")
    again = await schedules.submit(connection, [document(name="report")], now=after(seconds=1))
    assert again == [(first, False, False)]
    changed = await recurring_jobs.submit(
        connection, TESTER, [document(name="report", schedule={"cron": "0 13 * * *"})], now=after(minutes=1)
    )
    assert changed == [(first, False, True)]
    assert await fires(connection, first) == [("waiting", after(hours=1))]
    assert (await jobs.show(connection, first)).version == 2


async def test_a_schedule_written_in_sql_is_planned_and_an_invalid_one_shows_the_reason(connection: Conn) -> None:
    good, bad = await schedules.submit(
        connection, [document(schedule={"every": "90s"}), document(schedule={"cron": "61 * * * *"})], now=NOON
    )
    await plan(connection, NOON)
    assert await fires(connection, good.id) == [("waiting", after(seconds=90))]
    shown = await jobs.show(connection, bad.id)
    assert (shown.status, "61" in (shown.over_reason or "")) == ("failed", True)


async def test_a_pause_takes_back_runs_that_have_not_begun_and_a_resume_records_the_pause(connection: Conn) -> None:
    """A6, rule "job row first"."""
    job_id = await write(connection)
    async with connection.transaction():
        shown = await recurring_jobs.pause(connection, Caller("ann"), job_id, Pause("maintenance"), now=after(minutes=1))
    assert (shown.status, shown.note, shown.next_fire_at) == ("paused", "maintenance", None)
    assert await plan(connection, after(hours=1)) == planning.Planned([], None, 0, [])
    async with connection.transaction():
        shown = await recurring_jobs.resume(connection, TESTER, job_id, now=after(hours=1))
    assert (shown.status, shown.next_fire_at) == ("pending", after(hours=1, minutes=15))
    (row,) = await connection.fetch("SELECT status, reason, result FROM sexton.executions WHERE job_id = $1", job_id)
    assert (row["status"], row["reason"]) == ("paused", "4 fires: its job was paused")


async def test_a_fire_that_is_taken_back_behind_a_later_one_is_recorded(connection: Conn) -> None:
    """A6, B6, rule "job row first": it is not planned again, because a later fire has begun; so the history has it."""
    job_id, worker_id = await write(connection), await enlist(connection, now=NOON)
    await plan(connection, after(minutes=14, seconds=46))
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE fire_at = $1", after(minutes=30))
    assert len(await claim(connection, worker_id, now=after(minutes=30))) == 1
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, job_id, now=after(minutes=31))
    assert await fires(connection, job_id) == [("running", after(minutes=30))]
    rows = await connection.fetch("SELECT status, fire_at FROM sexton.executions WHERE job_id = $1", job_id)
    assert [tuple(row) for row in rows] == [("paused", after(minutes=15))]


async def test_a_pause_leaves_a_run_that_waits_for_its_next_attempt(connection: Conn) -> None:
    """A6, rule "job row first": it has begun, and its retries decide how it ends."""
    job_id, worker_id = await write(connection), await enlist(connection, now=NOON)
    await connection.fetch("UPDATE sexton.runs SET state = 'ready'")
    (claimed,) = await claim(connection, worker_id, now=after(minutes=15))
    await finish(connection, claimed.lease, FLAKY, now=after(minutes=15))
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, job_id, now=after(minutes=15))
    assert await fires(connection, job_id) == [("waiting", after(minutes=15))]


async def test_a_fire_that_is_too_late_is_left_to_catch_up(connection: Conn) -> None:
    """B6: a promoter that was down for more than a minute does not start it; its policy decides whether it still runs."""
    job_id = await write(connection)
    for late_s, promoted_count in ((61, 0), (59, 1)):
        now = after(minutes=15, seconds=late_s)
        done = await schedules.promote_alone(connection, partitions=ALL, limit=100, now=now)
        assert done.promoted_count == promoted_count
    assert await fires(connection, job_id) == [("ready", after(minutes=15))]


async def early(connection: Conn) -> tuple[UUID, datetime]:
    """A job whose jitter, which depends on its name, lets its fire of 12:15 begin a minute or more before."""
    schedule = {"cron": "*/15 * * * *", "jitter": {"max": 300, "both": True}}
    for number in count():
        job_id = await write(connection, name=f"early {number}", schedule=schedule)
        (row,) = await connection.fetch("SELECT due_at FROM sexton.runs WHERE job_id = $1", job_id)
        if row["due_at"] < after(minutes=14):
            return job_id, row["due_at"]
    raise AssertionError


async def test_a_fire_that_began_ahead_of_its_time_is_not_repeated_after_a_pause(connection: Conn) -> None:
    """A6, B4, rule "job row first": jitter let it begin before its nominal time, and it ended while its job was paused."""
    worker_id = await enlist(connection, now=NOON)
    job_id, due_at = await early(connection)
    await connection.fetch("UPDATE sexton.runs SET state = 'ready' WHERE job_id = $1", job_id)
    (claimed,) = await claim(connection, worker_id, now=due_at)
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, job_id, now=after(minutes=14))
    await finish(connection, claimed.lease, Succeeded(), now=after(minutes=14))
    async with connection.transaction():
        await recurring_jobs.resume(connection, TESTER, job_id, now=after(minutes=14, seconds=1))
    assert await fires(connection, job_id) == [("waiting", after(minutes=30))]


async def test_a_pause_before_the_first_planning_loses_no_fire(connection: Conn) -> None:
    """A6, B6: submitted in SQL while no planner ran."""
    (written,) = await schedules.submit(connection, [document()], now=NOON)
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, written.id, now=after(minutes=20))
        await recurring_jobs.resume(connection, TESTER, written.id, now=after(minutes=40))
    (row,) = await connection.fetch("SELECT reason, fire_at FROM sexton.executions WHERE job_id = $1", written.id)
    assert (row["reason"], row["fire_at"]) == ("2 fires: its job was paused", after(minutes=15))


@pytest.mark.parametrize("paused_at", [after(hours=2, minutes=51), after(hours=4, minutes=30)])
async def test_a_fire_that_was_recorded_as_missed_never_runs(connection: Conn, paused_at: datetime) -> None:
    """B9: the pause takes back a run from before the gap, however long ago the gap was written. Found by seed 157."""
    recurrence = {"catch_up": {"policy": "skip"}, "on_resume": "all"}
    job_id = await write(connection, recurrence=recurrence)
    assert (await plan(connection, after(hours=2, minutes=50))).missed_count == 10
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, job_id, now=paused_at)
        await recurring_jobs.resume(connection, TESTER, job_id, now=paused_at + timedelta(minutes=1))
    gap, *of_pause = await connection.fetch(
        "SELECT result->>'first' AS first, result->>'last' AS last FROM sexton.executions WHERE result IS NOT NULL ORDER BY id"
    )
    assert datetime.fromisoformat(gap["last"]) == after(hours=2, minutes=45)
    begun = [fire_at for _, fire_at in await fires(connection, job_id)]
    assert min([*begun, *(datetime.fromisoformat(one["first"]) for one in of_pause)]) == after(hours=3)


async def test_an_edit_takes_effect_on_the_next_fire_and_needs_the_current_version(connection: Conn) -> None:
    """A7."""
    job_id = await write(connection)
    with pytest.raises(VersionMismatch):
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id, 7), document(payload={"n": 2}), now=NOON)
    shown = await recurring_jobs.edit(
        connection, TESTER, AtVersion(job_id, 1), document(payload={"n": 2}), now=after(minutes=1)
    )
    assert (shown.version, shown.payload_json, shown.next_fire_at) == (2, '{"n": 2}', after(minutes=15))
    assert await fires(connection, job_id) == [("waiting", after(minutes=15))]


async def test_an_edit_notes_up_to_which_fire_the_rule_before_has_planned(connection: Conn) -> None:
    """A7, B6: after a downtime that is the time of the edit, which decides about the fires that the rule before has until then.
    The new rule plans from there."""
    job_id = await write(connection)
    await connection.execute("DELETE FROM sexton.runs")
    await recurring_jobs.edit(
        connection, TESTER, AtVersion(job_id), document(schedule={"cron": "*/20 * * * *"}), now=after(hours=2)
    )
    assert await connection.fetchval("SELECT fire_at FROM sexton.job_versions") == after(hours=2)


async def test_an_edit_notes_a_fire_that_jitter_has_started_ahead_of_its_time(connection: Conn) -> None:
    """A7: the rule before has planned up to that fire, which is after the edit. The new rule does not fire it again."""
    job_id = await write(connection)
    ((_, ahead),) = await fires(connection, job_id)
    await connection.execute("UPDATE sexton.runs SET state = 'ready'")
    await connection.execute(
        """UPDATE sexton.runs SET state = 'running', token = 1, attempt = 1, worker_id = gen_random_uuid(), claimed_at = $1""",
        ahead - timedelta(minutes=6),
    )
    await recurring_jobs.edit(
        connection, TESTER, AtVersion(job_id), document(schedule={"cron": "*/5 * * * *"}), now=ahead - timedelta(minutes=5)
    )
    assert await connection.fetchval("SELECT fire_at FROM sexton.job_versions") == ahead
    await plan(connection, ahead - timedelta(minutes=4))
    assert [at for _, at in await fires(connection, job_id)].count(ahead) == 1


async def test_a_cancelled_schedule_has_ended(connection: Conn) -> None:
    job_id = await write(connection)
    async with connection.transaction():
        assert (await cancel_job(connection, TESTER, job_id, now=NOON)).ended_count == 1
    assert (await jobs.show(connection, job_id)).status == "cancelled"
    with pytest.raises(NotAllowedIn):
        await cancel_job(connection, TESTER, job_id, now=NOON)
    assert await fires(connection, job_id) == []


async def test_two_hours_of_downtime_run_the_latest_within_the_window_and_record_the_rest(connection: Conn) -> None:
    """B6."""
    job_id = await write(connection)
    await connection.execute("DELETE FROM sexton.runs")
    planned = await plan(connection, after(hours=2, minutes=1))
    assert planned.missed_count == 6
    assert [fire for _, fire in await fires(connection, job_id)] == [after(hours=2), after(hours=2, minutes=15)]


async def promote(connection: Conn, now: datetime) -> int:
    """As the promoter's admission does for a job alone."""
    async with connection.transaction():
        await schedules.lock_partitions(connection, ALL)
        return (await schedules.promote_alone(connection, partitions=ALL, limit=100, now=now)).promoted_count


async def test_the_plain_promotion_ignores_first_starts_of_recurring_jobs(connection: Conn) -> None:
    """Rule "lock, then decide": admission decides about them under a lock."""
    job_id = await write(connection)
    done = await runs.promote(connection, Scan(ALL, 100), now=after(minutes=15))
    assert (done.promoted_count, done.to_decide) == (0, True)
    assert await promote(connection, after(minutes=15)) == 1
    assert (await fires(connection, job_id))[0] == ("ready", after(minutes=15))


async def test_the_index_rejects_a_second_live_run_of_an_exclusive_job(connection: Conn) -> None:
    """The backstop of rule "lock, then decide"."""
    job_id = await write(connection)
    await plan(connection, after(minutes=15))
    with pytest.raises(Exception, match="one_live_run"):
        await connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE job_id = $1", job_id)


async def test_a_run_that_has_begun_is_neither_taken_back_nor_fired_again(connection: Conn) -> None:
    """Rule "job row first", with a claim between: the cursor stays behind the run that began."""
    job_id = await write(connection)
    worker_id = await enlist(connection, now=after(minutes=15))
    await promote(connection, after(minutes=15))
    (claimed,) = await claim(connection, worker_id, now=after(minutes=15))
    async with connection.transaction():
        await recurring_jobs.pause(connection, TESTER, job_id, now=after(minutes=15))
        await recurring_jobs.resume(connection, TESTER, job_id, now=after(minutes=15, seconds=1))
    assert await fires(connection, job_id) == [("running", after(minutes=15)), ("waiting", after(minutes=30))]
    await finish(connection, claimed.lease, Succeeded(), now=after(minutes=16))
    assert (await jobs.show(connection, job_id)).status == "pending"


async def test_every_attempt_of_a_run_is_of_the_version_it_was_planned_for(connection: Conn) -> None:
    """A7: what is edited between two attempts takes effect on the next fire."""
    job_id = await write(connection, payload={"n": 1})
    worker_id = await enlist(connection, now=after(minutes=15))
    await promote(connection, after(minutes=15))
    (first,) = await claim(connection, worker_id, now=after(minutes=15))
    await finish(connection, first.lease, Released("drain"), now=after(minutes=15))
    async with connection.transaction():
        await recurring_jobs.edit(connection, TESTER, AtVersion(job_id), document(payload={"n": 2}), now=after(minutes=15))
    (second,) = await claim(connection, worker_id, now=after(minutes=15))
    assert (second.job_version, second.payload_json) == (1, '{"n": 1}')
    await finish(connection, second.lease, Succeeded(), now=after(minutes=16))
    await plan(connection, after(minutes=30))
    await promote(connection, after(minutes=30))
    (third,) = await claim(connection, worker_id, now=after(minutes=30))
    assert (third.job_version, third.payload_json) == (2, '{"n": 2}')


async def test_a_declaration_is_compared_with_the_newest_schedule_of_its_name(connection: Conn) -> None:
    """A sync writes no schedule again that has ended. What ended before under the same name does not count."""
    older, newer = document(name="n"), document(name="n", payload={"n": 2})
    for hour, given in enumerate((older, newer)):
        job_id = await write(connection, after(hours=hour), **given)
        async with connection.transaction():
            await cancel_job(connection, TESTER, job_id, now=after(hours=hour))
    assert await declared.ended(connection, [newer]) == {"n"}
    assert await declared.ended(connection, [older]) == set()


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_session_sets_how_long_its_schedules_wait(connection: Conn, rival: Conn, is_known: bool) -> None:
    """C19: a session that many callers share waits 20 ms for a name that another transaction holds. The functions' own time is
    2 s."""
    if is_known:
        await write(connection, name="n")
    await rival.execute("SET sexton.schedule_lock_timeout = '20ms'")
    async with connection.transaction():
        await connection.execute("SELECT sexton.submit_schedule('t', name => 'n', every => '1 hour')")
        began_s = SystemClock().monotonic()
        with pytest.raises(Contention), translated_errors():
            await write(rival, name="n")
        assert SystemClock().monotonic() - began_s < 1.5
