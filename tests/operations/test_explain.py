"""Why a job has or has not run: the first obstacle is the answer, with its evidence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from sexton.domain.outcome import Lost, Released, Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.errors import NotFound
from sexton.operations import one_time_jobs, replay
from sexton.operations.caller import SCHEDULER, Caller
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.explain import explain, locks
from sexton.operations.explain.link import Link
from sexton.operations.recurring import plan as planning
from sexton.operations.recurring import recurring_jobs
from sexton.operations.recurring.admit import admit
from sexton.operations.recurring.recurring_jobs import Pause
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.fleet import workers
from sexton.store.work import runs, schedules
from tests.callers import TESTER
from tests.store.support import FLAKY, NOW, after, bury, claim, claim_suspects, enlist, finish, submit

if TYPE_CHECKING:
    from sexton.store.database import Postgres
    from tests.store.support import Conn

NOTHING = "No scheduler and no worker is alive, so nothing is planned or promoted"


async def schedule(connection: Conn, now: datetime = NOW, **fields: Any) -> UUID:
    async with connection.transaction():
        document = {"task": "a", "schedule": {"cron": "*/15 * * * *"}, **fields}
        (written,) = await recurring_jobs.submit(connection, TESTER, [document], now=now)
    return written.id


async def node(connection: Conn, now: datetime = NOW) -> None:
    await workers.node_beat(connection, uuid4(), name="n1", partitions=list(ALL), now=now)


async def plan(connection: Conn, now: datetime) -> None:
    await planning.write(connection, SCHEDULER, await schedules.to_plan(connection, Scan(ALL, 10), now=now), now=now)


async def told(connection: Conn, job_id: UUID, now: datetime) -> tuple[str, dict[str, Link]]:
    explained = await explain(connection, TESTER, job_id, now=now)
    checks = [link.check for link in explained.chain]
    assert checks[0] == "exists"
    assert len(set(checks)) == len(checks)
    return explained.answer, {link.check: link for link in explained.chain}


async def test_a_job_that_does_not_exist_is_not_found(connection: Conn) -> None:
    with pytest.raises(NotFound):
        await explain(connection, TESTER, uuid4(), now=NOW)


async def test_a_one_time_job_is_followed_from_its_wait_to_its_end(connection: Conn) -> None:
    """B7, E1."""
    job_id = await submit(connection, delay="2h")
    answer, links = await told(connection, job_id, NOW)
    assert answer == "It is due 2026-03-04 14:00:00Z, in 2 h."
    assert links["scheduler"].detail == f"{NOTHING}; none has been seen within an hour."
    answer, links = await told(connection, job_id, after(hours=3))
    assert (answer, links["due"].ok) == (
        f"{NOTHING}; none has been seen within an hour.",
        True,
    )
    await node(connection, after(hours=2))
    answer, links = await told(connection, job_id, after(hours=3))
    assert answer == f"{NOTHING}; the last heartbeat of one was 2026-03-04 14:00:00Z."
    await node(connection, after(hours=3))
    answer, links = await told(connection, job_id, after(hours=3))
    assert (answer, links["scheduler"].evidence["leader"]) == ("No worker is alive.", "n1")

    await runs.promote(connection, Scan(ALL, 10), now=after(hours=3))
    assert (await told(connection, job_id, after(hours=3)))[0] == "No worker is alive."
    await enlist(connection, queues=["mail"], now=after(hours=3))
    assert (await told(connection, job_id, after(hours=3)))[0] == "No live worker serves the queue 'default'."
    await enlist(connection, tasks=["b"], now=after(hours=3))
    assert (await told(connection, job_id, after(hours=3)))[0] == "No live worker of the queue 'default' knows the task 'a'."
    worker_id = await enlist(connection, now=after(hours=3))
    answer, links = await told(connection, job_id, after(hours=3))
    assert answer == "Nothing is ahead of it in the queue 'default'."
    assert links["worker"].evidence["free_slot_count"] == 10

    (claimed,) = await claim(connection, worker_id, now=after(hours=3))
    answer, links = await told(connection, job_id, after(hours=3))
    assert answer == "It runs since 2026-03-04 15:00:00Z on w, attempt 1."
    assert links["running"].evidence["worker_id"] == worker_id
    await finish(connection, claimed.lease, Succeeded(), now=after(hours=3, seconds=1))
    answer, links = await told(connection, job_id, after(hours=4))
    assert (answer, set(links)) == ("It completed 2026-03-04 15:00:01Z.", {"exists", "ended"})


async def test_a_job_between_two_attempts_shows_its_error_and_its_next_attempt(connection: Conn) -> None:
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, FLAKY, now=NOW)
    answer, links = await told(connection, job_id, NOW)
    assert answer.startswith("Attempt 1 failed: ValueError: flaky; it is tried again 2026-03-04 12:00:")
    assert links["due"].evidence["error"] == {"type": "ValueError", "message": "flaky"}


async def test_a_snoozed_job_is_explained_as_snoozed(connection: Conn) -> None:
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, Snoozed(delay_s=300.0), now=NOW)
    assert "snoozed; it is tried again 2026-03-04 12:05:00Z, in 5 min." in (await told(connection, job_id, NOW))[0]


async def test_buried_and_discarded_jobs_show_the_reason(connection: Conn) -> None:
    job_id = await bury(connection, await enlist(connection))
    answer, links = await told(connection, job_id, NOW)
    assert answer.startswith("It has been in the dead letters since 2026-03-04 12:00:00Z, after 1 attempt: ")
    letter = links["dead_letter"]
    assert (letter.evidence["permanent"], letter.evidence["error"]["message"]) == (True, "broken")
    await replay.discard(connection, TESTER, [letter.evidence["dead_letter_id"]])
    assert "its dead letter was discarded or has expired" in (await told(connection, job_id, NOW))[0]


async def test_cancelled_and_paused_jobs_show_the_caller(connection: Conn) -> None:
    """A6."""
    cancelled, paused = await submit(connection, delay="1h"), await submit(connection, delay="1h")
    async with connection.transaction():
        await cancel_job(connection, TESTER, cancelled, reason="not needed", now=NOW)
        await one_time_jobs.pause(connection, Caller("ann"), paused, note="wait for Bob", now=NOW)
    assert (await told(connection, cancelled, NOW))[0] == "It was cancelled 2026-03-04 12:00:00Z: not needed."
    assert (await told(connection, paused, NOW))[0] == "It is paused since 2026-03-04 12:00:00Z by ann: wait for Bob."


async def test_a_position_in_the_queue_counts_its_lane_and_the_lanes_above(connection: Conn) -> None:
    await enlist(connection)
    for priority in ("low", "critical", "normal"):
        await submit(connection, priority=priority)
    job_id = await submit(connection, now=after(seconds=1))
    answer, links = await told(connection, job_id, after(seconds=1))
    assert answer == "It is ready, behind 2 runs in the queue 'default'; its lane is normal."
    seen = links["queue"].evidence
    assert (seen["lane"], seen["ahead_count"], seen["capped"]) == ("normal", 2, False)
    assert (seen["above_count"], seen["own_count"]) == (1, 1)


async def test_a_position_in_the_queue_names_the_tenants_it_takes_turns_with(connection: Conn) -> None:
    """C8: the waiting jobs of other tenants are not ahead of it."""
    await enlist(connection)
    for tenant in ("big", "big", "big", "other"):
        await submit(connection, tenant=tenant)
    job_id = await submit(connection, tenant="small", now=after(seconds=1))
    answer, links = await told(connection, job_id, after(seconds=1))
    assert answer == "Nothing is ahead of it in the queue 'default'; its tenant takes turns with 2 others."
    assert links["queue"].evidence["others_count"] == 2


async def test_a_schedule_shows_its_next_fire_in_its_zone(connection: Conn) -> None:
    """A3."""
    job_id = await schedule(connection, schedule={"cron": "0 9 * * *", "timezone": "America/New_York"})
    answer, links = await told(connection, job_id, NOW)
    assert answer == "Its next fire is due 2026-03-04 09:00:00 EST (2026-03-04 14:00:00Z), in 2 h."
    assert links["exists"].evidence["kind"] == "recurring"


async def test_a_paused_schedule_shows_the_end_of_its_pause(connection: Conn) -> None:
    """A6."""
    job_id = await schedule(connection)
    async with connection.transaction():
        await recurring_jobs.pause(connection, Caller("ann"), job_id, Pause("freeze", after(days=1)), now=NOW)
    answer, links = await told(connection, job_id, after(hours=1))
    assert answer == ("It is paused since 2026-03-04 12:00:00Z by ann: freeze; it resumes by itself 2026-03-05 12:00:00Z.")
    assert links["active"].evidence["resume_at"] == after(days=1)
    async with connection.transaction():
        await recurring_jobs.resume(connection, TESTER, job_id, now=after(hours=1))
    answer, links = await told(connection, job_id, after(hours=1))
    assert answer.startswith(
        "Its fires from 2026-03-04 12:15:00Z to 2026-03-04 13:00:00Z did not run: 4 fires: its job was paused"
    )


async def test_a_schedule_that_has_ended_shows_the_reason(connection: Conn) -> None:
    cancelled = await schedule(connection)
    async with connection.transaction():
        await cancel_job(connection, TESTER, cancelled, reason="gone", now=NOW)
    (bad,) = await schedules.submit(connection, [{"task": "a", "schedule": {"cron": "61 * * * *"}}], now=NOW)
    await plan(connection, NOW)
    answer, links = await told(connection, cancelled, after(minutes=1))
    assert answer == "Its schedule ended 2026-03-04 12:00:00Z: it was cancelled: gone."
    answer, links = await told(connection, bad.id, after(minutes=1))
    assert answer.startswith("Its schedule ended 2026-03-04 12:00:00Z: its schedule cannot be read: cron: ")
    assert not links["schedule"].ok


async def test_missed_fires_show_their_range_and_the_node_that_noticed(connection: Conn) -> None:
    """B6."""
    job_id = await schedule(connection)
    await connection.execute("DELETE FROM sexton.runs")
    late = after(hours=2, minutes=1)
    answer, links = await told(connection, job_id, late)
    assert answer.startswith("No fire of it is planned; it should have been planned 2026-03-04 12:14:")
    assert not links["scheduler"].ok
    await plan(connection, late)
    answer, links = await told(connection, job_id, late)
    assert answer.startswith("Its fires from 2026-03-04 12:30:00Z to 2026-03-04 13:45:00Z did not run: 6 fires: missed")
    assert "it was noticed 2026-03-04 14:01:00Z, when planning resumed" in answer
    assert links["last_fire"].evidence["count"] == 6


async def test_a_skipped_or_blocked_fire_names_the_run_that_blocks_it(connection: Conn, database: Postgres) -> None:
    """B4."""
    skipping = await schedule(connection)
    queueing = await schedule(connection, recurrence={"overlap": {"policy": "queue"}})
    worker_id = await enlist(connection)
    begun: dict[UUID, UUID] = {}
    for minutes in (15, 30):
        await plan(connection, after(minutes=minutes))
        await admit(database, SCHEDULER, ALL, limit=10, now=after(minutes=minutes))
        for claimed in await claim(connection, worker_id, now=after(minutes=minutes)):
            begun[claimed.lease.job_id] = claimed.lease.run_id
    answer, links = await told(connection, skipping, after(minutes=31))
    assert answer.startswith("It runs since 2026-03-04 12:15:00Z on w")
    assert links["last_fire"].evidence["run_in_the_way"] == str(begun[skipping])
    assert links["last_fire"].detail.startswith("Its fire of 2026-03-04 12:30:00Z was skipped: the previous run has not ended")
    # The blocking run waits for its next attempt: then it is the obstacle.
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER USER")
    await connection.execute(
        "UPDATE sexton.runs SET state = 'ready', worker_id = NULL, claimed_at = NULL, due_at = due_at + interval '1 day' "
        "WHERE job_id = $1 AND state = 'running'",
        queueing,
    )
    answer, links = await told(connection, queueing, after(minutes=31))
    assert answer.startswith(f"It waits for an earlier run of the same job to end: {begun[queueing]}, ready")
    assert links["overlap"].evidence["runs_in_the_way"] == [begun[queueing]]


async def test_a_failed_try_of_a_schedule_is_shown_with_its_error(connection: Conn, database: Postgres) -> None:
    job_id = await schedule(connection, policy={"retry": {"max_attempts": 1}})
    worker_id = await enlist(connection)
    await plan(connection, after(minutes=15))
    await admit(database, SCHEDULER, ALL, limit=10, now=after(minutes=15))
    (claimed,) = await claim(connection, worker_id, now=after(minutes=15))
    await finish(connection, claimed.lease, FLAKY, now=after(minutes=16))
    answer, links = await told(connection, job_id, after(minutes=17))
    assert answer.startswith("Its last try, of the fire of 2026-03-04 12:15:00Z, failed: ")
    assert answer.endswith("; it is in the dead letters.")
    assert links["last_fire"].evidence["error"]["message"] == "flaky"
    assert links["due"].detail.startswith("Its next fire is due 2026-03-04 12:30:00Z, in 13 min")


@pytest.mark.made_up_rows
async def test_an_explanation_costs_the_same_beside_many_runs(connection: Conn, database_url: str) -> None:
    """Every statement uses an index, and the queue is counted up to a limit."""
    await enlist(connection)
    job_id = await schedule(connection)
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER USER")
    await connection.execute(
        "INSERT INTO sexton.runs "
        "(id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task) "
        "SELECT id, id, $1, $1, 2, 0, false, 'ready', 'now', 'default', 't', 'a' "
        "FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 20000)) s",
        NOW - timedelta(days=1),
    )
    ready = await submit(connection, tenant="t")
    service = await asyncpg.connect(database_url, server_settings=_SERVER_SETTINGS)
    try:
        before = await _rows_read(service)
        assert (await told(service, ready, NOW))[1]["queue"].evidence["capped"]
        assert (await told(service, job_id, NOW))[1]["due"].evidence["state"] == "waiting"
        assert 1_000 <= await _rows_read(service) - before <= 1_050
    finally:
        await service.close()


async def _rows_read(connection: Conn) -> int:
    """Rows of `runs` read so far, by any access path."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    (row,) = await connection.fetch(
        "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = 'runs') "
        "+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'runs') AS n"
    )
    return int(row["n"])


async def test_a_run_of_a_failed_call_says_with_how_many_it_is_next_executed(connection: Conn) -> None:
    """C17, rule "a failed call is halved"."""
    worker_id, job_id = await enlist(connection), await submit(connection)
    for limit, beside in ((250, "in a call of at most 250 runs"), (1, "alone")):
        (claimed,) = await claim(connection, worker_id)
        await finish(connection, claimed.lease, Released("its call failed with 500 runs in it", batch_limit=limit))
        answer, links = await told(connection, job_id, NOW)
        assert answer == f"Calls of several runs have failed with it among them; it is next executed {beside}."
        assert links["batch"].evidence == {"batch_limit": limit}


async def test_a_suspect_waits_in_quarantine(connection: Conn) -> None:
    """C18, rule "suspects apart": what happened, how often, and in how large a group it is executed."""
    worker_id, job_id = await enlist(connection), await submit(connection)
    for held in (40, 40):
        (claimed,) = await claim(connection, worker_id)
        await finish(connection, claimed.lease, Lost(f"its worker was killed; the worker held {held - 1} other runs", held))
    answer, links = await told(connection, job_id, NOW)
    assert answer == (
        "It waits in quarantine, because it was lost 2 times in a row: its worker was killed; the worker held 39 other runs. "
        "A worker in quarantine executes it in a group of at most 20 suspects."
    )
    assert (links["quarantine"].evidence["company"], links["quarantine"].evidence["loss_count"]) == (20, 2)
    for _ in range(5):
        (claimed,) = await claim_suspects(connection)
        await finish(connection, claimed.lease, Lost("its worker was killed", 2))
    assert (await told(connection, job_id, NOW))[0].endswith("A worker in quarantine executes it alone.")
    await connection.execute("UPDATE sexton.workers SET tasks = '{b}'")
    assert (await told(connection, job_id, NOW))[0] == "No live worker of the queue 'default' knows the task 'a'."


async def test_a_schedule_whose_row_is_locked_names_the_session_and_does_not_wait(
    connection: Conn, rival: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7, rule "never wait inside a batch": a transaction that was left open after the documented call."""
    job_id = await schedule(connection, name="report")
    await node(connection, after(minutes=15))
    await rival.execute("SET application_name = 'billing'")
    async with rival.transaction():
        await rival.execute("SELECT sexton.submit_schedule('a', name => 'report', cron => '0 0 * * *')")
        monkeypatch.setattr(locks, "BRIEF_S", 1e9)
        _, links = await told(connection, job_id, after(minutes=1))
        assert "locked" not in links, "it was locked a moment ago, as by any edit"
        monkeypatch.setattr(locks, "BRIEF_S", 0.0)
        _, links = await told(connection, job_id, after(minutes=1))
        assert links["locked"].ok, "no planner needs it yet"
        answer, links = await told(connection, job_id, after(minutes=15))
    pid = rival.get_server_pid()
    assert answer == links["locked"].detail
    assert answer.startswith(f"Its row is locked by session {pid} (billing, user ")
    assert answer.endswith("s; the schedule continues when that ends.")
    assert ", whose transaction has been open for " in answer
    assert links["locked"].evidence["pid"] == pid
    _, links = await told(connection, job_id, after(minutes=15))
    assert "locked" not in links


async def test_a_locked_run_and_a_locked_limit_are_named(
    connection: Conn, rival: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await submit(connection, limit={"key": "stripe", "running": 1})
    async with rival.transaction():
        await rival.execute("SELECT FROM sexton.limits FOR UPDATE")
        monkeypatch.setattr(locks, "BRIEF_S", 0.0)
        answer, _ = await told(connection, job_id, after(seconds=10))
        assert answer.startswith("Its limit 'stripe' is locked by session ")
        await rival.execute("SELECT FROM sexton.runs FOR UPDATE")
        answer, _ = await told(connection, job_id, after(seconds=10))
        assert answer.startswith("Its run ")
        assert answer.endswith("; it continues when that ends.")
