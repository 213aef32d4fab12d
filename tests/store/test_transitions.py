"""The table of legal transitions compared with the database: the trigger made from it, and the schema's own CHECKs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg
import pytest

from sexton.domain import run
from sexton.domain.outcome import Cancelled, Lost, Missed, Released, Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.domain.states import TRANSITIONS, Event, RunState, Status
from sexton.operations import definition_change, one_time_jobs, replay
from sexton.operations.cancel import cancel as cancel_job
from sexton.operations.recurring import recurring_jobs
from sexton.operations.versions import AtVersion
from sexton.store.work import dead_letters, runs, schedules
from tests import transitions
from tests.callers import TESTER
from tests.store.support import BROKEN, FLAKY, NOW, after, claim, claim_suspects, enlist, finish, run_row, submit

if TYPE_CHECKING:
    from sexton.domain.run import Lease
    from tests.store.support import Conn

INSERT = """
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task,
                         worker_id, claimed_at)
VALUES ($1, $1, $2, $2, 2, 0, false, $3, 'now', 'default', 'default', 'a', $4, $5)
"""
STATES: list[RunState | None] = [None, *RunState]
CHANGES = [(before, target) for before in STATES for target in STATES if before != target]


async def _put(connection: Conn, state: str) -> None:
    """A run in any state, written without the trigger."""
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    lease = (uuid4(), NOW) if state == "running" else (None, None)
    await connection.execute(INSERT, uuid4(), NOW, state, *lease)
    await connection.execute("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")


async def _move(connection: Conn, before: str | None, target: str | None) -> None:
    lease = (uuid4(), NOW) if target == "running" else (None, None)
    if before is None:
        await connection.execute(INSERT, uuid4(), NOW, target, *lease)
    elif target is None:
        await connection.execute("DELETE FROM sexton.runs")
    else:
        claiming = target == "running"
        await connection.execute(
            "UPDATE sexton.runs SET state = $1, worker_id = $2, claimed_at = $3, token = token + $4, attempt = attempt + $4",
            target,
            *lease,
            int(claiming),
        )


@pytest.mark.made_up_rows
@pytest.mark.parametrize(("before", "target"), CHANGES, ids=lambda state: state or "nothing")
async def test_only_the_changes_in_the_table_pass(connection: Conn, before: RunState | None, target: RunState | None) -> None:
    """B1: the states of a run are one table; any other change is rejected."""
    if before is not None:
        await _put(connection, before)
    if any((source, goal) == (before, target) for _, source, goal in TRANSITIONS):
        await _move(connection, before, target)
    else:
        with pytest.raises(asyncpg.PostgresError) as refused:
            await _move(connection, before, target)
        assert refused.value.sqlstate == transitions.REJECTED


@pytest.mark.made_up_rows
@pytest.mark.parametrize(
    "change",
    [
        "token = token + 1",
        "state = 'ready', worker_id = NULL, claimed_at = NULL, token = 0",
        "state = 'ready', worker_id = NULL, claimed_at = NULL, attempt = attempt - 2",
        "state = 'ready', worker_id = NULL, claimed_at = NULL, lost_count = lost_count + 2",
        "state = 'ready', worker_id = NULL, claimed_at = NULL, job_id = gen_random_uuid()",
        "worker_id = gen_random_uuid()",
        "due_at = due_at + interval '1 s'",
        "job_version = job_version + 1, lane = 0",
    ],
)
async def test_an_illegal_change_of_fence_or_budget_is_rejected(connection: Conn, change: str) -> None:
    """C4: the token grows with a claim only and never shrinks; a lease never changes hands while it runs."""
    worker_id = await enlist(connection)
    await submit(connection)
    await claim(connection, worker_id)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await connection.execute(f"UPDATE sexton.runs SET {change}")
    assert refused.value.sqlstate == transitions.REJECTED


async def test_the_schema_has_exactly_the_states_of_the_domain(connection: Conn) -> None:
    """B1: the CHECKs and the enums name the same words."""
    assert await _words(connection, "runs", "state_is_known") == set(RunState)
    assert await _words(connection, "executions", "status_is_known") == set(Status)
    assert await _words(connection, "endings", "status_is_final") == {"completed", "failed", "cancelled"}


async def _words(connection: Conn, table: str, constraint: str) -> set[str]:
    definition = await connection.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1 AND conrelid = ('sexton.' || $2)::regclass",
        constraint,
        table,
    )
    return set(re.findall(r"'(\w+)'", definition))


@pytest.mark.made_up_rows
@pytest.mark.parametrize(
    ("state", "worker_id", "claimed_at"),
    [
        ("running", None, None),
        ("ready", UUID(int=7), None),
        ("ready", None, NOW),
        ("running", UUID(int=7), None),
        ("napping", None, None),
    ],
)
async def test_a_run_has_a_lease_exactly_while_it_is_running(
    connection: Conn, state: str, worker_id: object, claimed_at: object
) -> None:
    """B1: the schema itself rejects a running run without a lease and a lease without a running run."""
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(INSERT, uuid4(), NOW, state, worker_id, claimed_at)


async def test_every_transition_of_the_table_happens_through_the_store(connection: Conn) -> None:
    """B1: the store can make every transition of the table; the trigger records them."""
    await connection.execute("""
        CREATE TABLE sexton.test_only_seen (source text, target text);
        CREATE FUNCTION sexton.test_only_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO sexton.test_only_seen
          VALUES (CASE WHEN TG_OP <> 'INSERT' THEN OLD.state END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.state END);
          RETURN NULL; END $$;
        CREATE TRIGGER test_only_note AFTER INSERT OR UPDATE OR DELETE ON sexton.runs
          FOR EACH ROW EXECUTE FUNCTION sexton.test_only_note()""")
    worker_id = await enlist(connection)

    async def taken() -> Lease:
        await submit(connection)
        (claimed,) = await claim(connection, worker_id)
        return claimed.lease

    for outcome in (Succeeded(), BROKEN, Cancelled(), Released("drain"), Lost("gone"), Snoozed(5), Snoozed(0), FLAKY):
        lease = await taken()
        answer = await finish(connection, lease, outcome)
        assert answer is not None
        if answer.state is not None:
            await _cancel(connection, lease.job_id)
    missed = await submit(connection, delay="1h", start_within="1s")
    for promote in (False, True):
        if promote:
            missed = await submit(connection, delay="1h", start_within="1s")
            await runs.promote(connection, Scan(ALL, 10), now=after(hours=1))
        (overdue,) = await runs.expired(connection, limit=10, now=after(hours=2))
        assert overdue.lease.job_id == missed
        await finish(connection, overdue.lease, Missed("too late"), now=after(hours=2))
    (letter, *_) = await dead_letters.find(connection, dead_letters.Filter())
    await replay.replay(connection, TESTER, [letter.id], now=NOW)
    edited = await submit(connection)
    for delay_s in (60.0, 0.0):
        await one_time_jobs.edit(connection, TESTER, AtVersion(edited), definition_change.Changes(delay_s=delay_s), now=NOW)
        await one_time_jobs.pause(connection, TESTER, edited, now=NOW)
        await one_time_jobs.resume(connection, TESTER, edited, now=NOW)
    await one_time_jobs.pause(connection, TESTER, edited, now=NOW)
    await _cancel(connection, edited)
    await _recur(connection)
    await _limit(connection, worker_id)
    await _suspect(connection)

    seen = {tuple(row) for row in await connection.fetch("SELECT DISTINCT source, target FROM sexton.test_only_seen")}
    legal = {(source, target) for _, source, target in TRANSITIONS}
    assert seen == legal
    assert {event for event, _, _ in TRANSITIONS} == set(Event)


async def _recur(connection: Conn) -> None:
    """A schedule that fires every second, in which each fire finds the previous one running."""
    (schedule,) = await recurring_jobs.submit(
        connection, TESTER, [{"task": "a", "schedule": {"every": 1}, "policy": {"start_within_s": 60}}], now=NOW
    )
    waiting = [
        row["id"] for row in await connection.fetch("SELECT id FROM sexton.runs WHERE job_id = $1 ORDER BY due_at", schedule.id)
    ]
    ready, admitted, skipped, dropped, missed, cancelled, left = waiting[:7]
    await schedules.block(connection, [admitted, dropped, missed, cancelled, left])
    await schedules.admit(connection, [ready])
    unheld = [
        run.Report(run_id=run_id, token=0, next="end", status="skipped", ending="cancelled") for run_id in (skipped, dropped)
    ]
    await runs.finish(connection, unheld, now=NOW)
    await connection.execute("DELETE FROM sexton.runs WHERE id = $1", ready)
    await schedules.admit(connection, [admitted])
    for run_id, outcome in ((missed, Missed("too late")), (cancelled, Cancelled())):
        (lease,) = [one for one in await runs.of_job(connection, schedule.id) if one.run_id == run_id]
        await finish(connection, lease, outcome)
    await recurring_jobs.pause(connection, TESTER, schedule.id, now=NOW)


async def _limit(connection: Conn, worker_id: UUID) -> None:
    """A limit of one, that each of these runs finds taken or passes."""
    limit = {"key": "stripe", "running": 1}
    first, second = [await submit(connection, limit=limit) for _ in range(2)]
    await connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE state = 'parked'")  # too many: the claim parks them
    (claimed,) = [one for one in await claim(connection, worker_id) if one.lease.job_id in (first, second)]
    other = second if claimed.lease.job_id == first else first
    await finish(connection, claimed.lease, Snoozed(0))
    await one_time_jobs.edit(connection, TESTER, AtVersion(other), definition_change.Changes(delay_s=60.0), now=NOW)
    await one_time_jobs.edit(connection, TESTER, AtVersion(other), definition_change.Changes(delay_s=0.0), now=NOW)
    await one_time_jobs.pause(connection, TESTER, other, now=NOW)
    await one_time_jobs.resume(connection, TESTER, other, now=NOW)
    for job_id in (first, second):
        await _cancel(connection, job_id)
    (schedule,) = await recurring_jobs.submit(
        connection, TESTER, [{"task": "a", "schedule": {"every": 1}, "limit": limit}], now=NOW
    )
    fires = await connection.fetch("SELECT id FROM sexton.runs WHERE job_id = $1 ORDER BY due_at", schedule.id)
    await schedules.block(connection, [fires[0]["id"]])
    await schedules.admit(connection, [fires[0]["id"]])
    await recurring_jobs.pause(connection, TESTER, schedule.id, now=NOW)


async def _suspect(connection: Conn) -> None:
    """Lost twice in a row, given back, paused and resumed, and then too late; another one is cancelled."""
    for cancelled in (False, True):
        job_id = await submit(connection, deadline="1h")
        worker_id = await enlist(connection)
        for _ in range(2):
            (claimed,) = await claim(connection, worker_id)
            await finish(connection, claimed.lease, Lost("gone", held=2))
        if cancelled:
            await _cancel(connection, job_id)
            return
        (claimed,) = await claim_suspects(connection)
        await finish(connection, claimed.lease, Released("drain"))
        await one_time_jobs.pause(connection, TESTER, job_id, now=NOW)
        await one_time_jobs.resume(connection, TESTER, job_id, now=NOW)
        (overdue,) = await runs.expired(connection, limit=10, now=after(hours=2))
        await finish(connection, overdue.lease, Missed("too late"), now=after(hours=2))


async def _cancel(connection: Conn, job_id: object) -> None:
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)  # type: ignore[arg-type]
    assert await run_row(connection, job_id) is None  # type: ignore[arg-type]
