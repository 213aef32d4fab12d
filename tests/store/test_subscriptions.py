"""C15: subscribers get events about runs, as jobs that the transaction which ends the run submits."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from sexton.domain import run
from sexton.domain.job import submission
from sexton.domain.outcome import Cancelled, ErrorInfo, Failed, Lost, Missed, Outcome, Snoozed, Succeeded, TimedOut
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.domain.sharing import tenant_settings
from sexton.domain.subscription import KINDS, Runs, subscription
from sexton.domain.targets import HTTP_TASK, HttpTarget
from sexton.operations import definition_change, one_time_jobs, subscriptions, tenants
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring import plan as planning
from sexton.operations.recurring import recurring_jobs
from sexton.operations.versions import AtVersion
from sexton.store import uuid7
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.sql import statements
from sexton.store.views.search import JobFilter
from sexton.store.work import dead_letters, jobs, runs, schedules
from sexton.store.work import subscriptions as subscription_rows
from tests.callers import TESTER
from tests.rig import LONG_S
from tests.store.support import BROKEN, FLAKY, NOW, after, claim, enlist, finish, submit, submit_many

if TYPE_CHECKING:
    from datetime import datetime

    from tests.store.support import Conn

HOOK = HttpTarget("https://hooks.example/sexton", signed_with=("hooks",), retries_on=("4xx", "5xx"), calls_back=False)
DONE = Succeeded()


async def listen(connection: Conn, name: str = "all", *, now: datetime = NOW, **given: Any) -> None:
    runs_of = Runs(**{field: given.pop(field) for field in ("tenant", "queue", "job_id") if field in given})
    await subscriptions.put(connection, TESTER, subscription(name, given.pop("target", HOOK), runs=runs_of, **given), now=now)


async def told(connection: Conn, name: str = "all") -> list[dict[str, Any]]:
    """The events for a subscriber, as they will be sent, in order."""
    rows = await connection.fetch("SELECT payload FROM sexton.jobs WHERE name = $1 ORDER BY id", f"webhook:{name}")
    return [json.loads(row["payload"]) for row in rows]


async def kinds(connection: Conn, name: str = "all") -> list[str]:
    return sorted(event["type"].removeprefix("run.") for event in await told(connection, name))


async def ended(connection: Conn, outcome: Outcome, *, now: datetime = NOW, result: Any = None, **options: Any) -> UUID:
    """A job whose first try had this outcome."""
    worker_id = await enlist(connection, now=now)
    job_id = await submit(connection, now=now, **options)
    (claimed,) = await claim(connection, worker_id, queues=[options.get("queue", "default")], now=now)
    raw = None if result is None else submission("a", result).payload
    await finish(connection, claimed.lease, outcome, result=raw, started_s=0.5, took_s=1.0, now=now)
    return job_id


async def test_the_event_of_a_successful_run_is_complete(connection: Conn) -> None:
    """C15."""
    await listen(connection)
    job_id = await ended(connection, DONE, name="invoice", tenant="acme", result={"sent": 3})
    (event,) = await told(connection)
    data = event.pop("data")
    assert event == {"type": "run.completed", "timestamp": "2026-03-04T12:00:01.5+00:00"}
    (row,) = await connection.fetch("SELECT id FROM sexton.executions")
    assert data == {
        "job_id": str(job_id),
        "name": "invoice",
        "tenant": "acme",
        "queue": "default",
        "handler": "a",
        "run_id": str(job_id),
        "execution_id": str(row["id"]),
        "origin": "now",
        "fire_at": "2026-03-04T12:00:00+00:00",
        "attempt": 1,
        "status": "succeeded",
        "started_at": "2026-03-04T12:00:00.5+00:00",
        "ended_at": "2026-03-04T12:00:01.5+00:00",
        "reason": None,
        "error": None,
        "result": {"sent": 3},
    }


async def test_a_delivery_is_a_job_with_the_subscribers_target_and_retries(connection: Conn) -> None:
    """C2, C15: it runs in the tenant of the run, at once, and the worker that sends it signs it."""
    await listen(connection, queue=None, priority="low", retry=Retry.after("1s", "2s"), timeout="7s")
    await ended(connection, DONE, tenant="acme")
    (row,) = await connection.fetch("SELECT id FROM sexton.jobs WHERE task = $1", HTTP_TASK)
    job = await jobs.show(connection, row["id"])
    assert (job.tenant, job.queue, job.lane, job.timeout_s, job.name) == ("acme", "default", 3, 7.0, "webhook:all")
    assert (job.status, job.next_fire_at, job.submitted_by) == ("pending", after(microseconds=1), "subscription")
    policy = run.policy_of(job.policy_json)
    assert policy.target == HOOK
    assert policy.retry == Retry.after("1s", "2s")
    worker_id = await enlist(connection, tasks=[HTTP_TASK])
    (claimed,) = await claim(connection, worker_id, tasks=[HTTP_TASK])
    assert json.loads(claimed.payload_json or "")["type"] == "run.completed"


@pytest.mark.parametrize(
    ("outcome", "status", "will_retry", "expected"),
    [
        (DONE, "succeeded", None, ["completed"]),
        (FLAKY, "failed", True, ["failed"]),
        (TimedOut("after 30 s"), "timed_out", True, ["failed"]),
        (Lost("its worker died"), "lost", True, ["failed"]),
        (BROKEN, "failed", False, ["dead_lettered", "failed"]),
        (Missed("too late"), "missed", None, ["dead_lettered", "missed"]),
        (Cancelled(), "cancelled", None, []),
        (Snoozed(5.0), "snoozed", None, []),
    ],
)
async def test_each_outcome_has_its_events(
    connection: Conn, outcome: Outcome, status: str, will_retry: bool | None, expected: list[str]
) -> None:
    """C15: `failed` is about a try and says whether another follows; `dead_lettered` is about the run."""
    await listen(connection)
    await ended(connection, outcome)
    assert await kinds(connection) == expected
    for event in await told(connection):
        assert event["data"]["status"] == status
        assert event["data"].get("will_retry") == (will_retry if event["type"] == "run.failed" else None)


async def test_an_error_is_sent_with_type_and_message_without_its_traceback(connection: Conn) -> None:
    """C15: and with a bounded size."""
    await listen(connection, kinds=["failed"])
    error = ErrorInfo("ValueError", "x" * 5_000, traceback="File …", kinds=("ValueError", "Exception"))
    await ended(connection, Failed(error))
    (event,) = await told(connection)
    assert event["data"]["error"] == {"type": "ValueError", "message": "x" * 2_000}


async def test_a_large_result_is_left_out_and_marked(connection: Conn) -> None:
    await listen(connection)
    await ended(connection, DONE, result="x" * 16_000)
    await ended(connection, DONE, result="x" * 17_000, now=after(seconds=1))
    small, large = (event["data"] for event in await told(connection))
    assert len(small["result"]) == 16_000
    assert "result_omitted" not in small
    assert "result" not in large
    assert large["result_omitted"] is True


async def test_a_snooze_that_ends_in_the_dead_letters_is_sent(connection: Conn) -> None:
    await listen(connection)
    await ended(connection, Snoozed(60.0), deadline="10s")
    assert await kinds(connection) == ["dead_lettered"]


async def test_a_rolled_back_end_is_not_sent(connection: Conn) -> None:
    """C15: written in the transaction that ends the run."""
    await listen(connection)
    transaction = connection.transaction()
    await transaction.start()
    await ended(connection, DONE)
    assert await kinds(connection) == ["completed"]
    await transaction.rollback()
    assert await kinds(connection) == []


async def test_a_report_under_a_lost_lease_sends_nothing(connection: Conn) -> None:
    await listen(connection)
    worker_id = await enlist(connection)
    await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, DONE)
    assert await finish(connection, claimed.lease, DONE) is None
    assert await kinds(connection) == ["completed"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 3),
        ({"tenant": "acme"}, 2),
        ({"queue": "mail"}, 2),
        ({"tenant": "acme", "queue": "mail"}, 1),
        ({"tenant": "Acme"}, 0),
        ({"tenant": "mail"}, 0),
        ({"job_id": UUID(int=1)}, 0),
        ({"kinds": ["missed"]}, 0),
        ({"kinds": ["completed", "missed"]}, 3),
        ({"paused": True}, 0),
    ],
)
async def test_a_subscriber_gets_events_of_the_runs_it_chose(connection: Conn, given: dict[str, Any], expected: int) -> None:
    """C15: per tenant, queue or job, in any combination; none: all."""
    await listen(connection, **given)
    await listen(connection, "another", job_id=UUID(int=2))
    await ended(connection, DONE, tenant="acme")
    await ended(connection, DONE, tenant="acme", queue="mail")
    await ended(connection, DONE, tenant="other", queue="mail")
    assert len(await told(connection)) == expected


async def test_a_subscriber_gets_events_of_one_job_and_only_in_its_tenant(connection: Conn) -> None:
    worker_id = await enlist(connection)
    wanted, other = await submit_many(connection, [submission("a", {}, tenant="acme"), submission("a", {}, tenant="acme")])
    await listen(connection, "one", job_id=wanted)
    await listen(connection, "elsewhere", job_id=wanted, tenant="other")
    for claimed in await claim(connection, worker_id):
        await finish(connection, claimed.lease, DONE)
    assert [event["data"]["job_id"] for event in await told(connection, "one")] == [str(wanted)]
    assert await told(connection, "elsewhere") == []
    assert other != wanted


async def test_each_subscriber_gets_a_delivery_of_its_own(connection: Conn) -> None:
    for name in ("a", "b", "c"):
        await listen(connection, name)
    await ended(connection, DONE)
    assert [len(await told(connection, name)) for name in ("a", "b", "c")] == [1, 1, 1]


async def test_a_delivery_causes_no_events_however_it_ends(connection: Conn) -> None:
    """C15: otherwise a failed one would send events about itself for ever."""
    await listen(connection, retry=Retry.after("1s"))
    await ended(connection, DONE)
    worker_id = await enlist(connection, tasks=[HTTP_TASK])
    (first,) = await claim(connection, worker_id, tasks=[HTTP_TASK])
    await finish(connection, first.lease, FLAKY)
    await runs.promote(connection, Scan(ALL, 10), now=after(seconds=5))
    (second,) = await claim(connection, worker_id, tasks=[HTTP_TASK], now=after(seconds=5))
    await finish(connection, second.lease, BROKEN, now=after(seconds=5))
    assert len(await dead_letters.find(connection, dead_letters.Filter())) == 1
    assert await kinds(connection) == ["completed"]


async def test_a_plain_http_job_causes_events_like_any_other(connection: Conn) -> None:
    """Its policy makes a job a delivery, neither its task nor its name."""
    await listen(connection)
    worker_id = await enlist(connection, tasks=[HTTP_TASK])
    (answer,) = await jobs.submit(connection, [submission(HOOK, {}, name="webhook:all")], now=NOW)
    (claimed,) = await claim(connection, worker_id, tasks=[HTTP_TASK])
    await finish(connection, claimed.lease, DONE)
    mine = [event for event in await told(connection) if event.get("type") == "run.completed"]
    assert [event["data"]["job_id"] for event in mine] == [str(answer.id)]
    log = await subscription_rows.deliveries(connection, "all", JobFilter(), limit=10)
    assert [one.delivers.kind for one in log.rows] == ["completed"]


async def test_a_gap_of_a_schedule_is_one_event_with_its_count(connection: Conn) -> None:
    """C15, B6: one per row of the ledger, never one per fire."""
    await listen(connection)
    async with connection.transaction():
        document = {"task": "a", "name": "report", "schedule": {"cron": "*/15 * * * *"}}
        (job,) = await recurring_jobs.submit(connection, TESTER, [document], now=NOW)
    await connection.execute("DELETE FROM sexton.runs")
    later = after(hours=2, minutes=1)
    seen = await schedules.to_plan(connection, Scan(ALL, 100), now=later)
    planned = await planning.write(connection, SCHEDULER, seen, now=later)
    (event,) = await told(connection)
    data = event["data"]
    assert event["type"] == "run.missed"
    assert (data["name"], data["job_id"], data["run_id"]) == ("report", str(job.id), None)
    assert data["count"] == planned.missed_count == 6
    assert (data["first_at"], data["last_at"]) == ("2026-03-04T12:30:00+00:00", "2026-03-04T13:45:00+00:00")


async def test_a_delivery_is_submitted_at_the_moment_its_run_ended(connection: Conn) -> None:
    """B9: the trigger reads it from the id of the execution, because the statement's clock may have been moved."""
    (row,) = await connection.fetch("SELECT sexton.uuid7($1) AS id", int(after(microseconds=123_457).timestamp() * 1_000_000))
    (found,) = await connection.fetch("SELECT sexton.instant_of($1) AS at", row["id"])
    assert found["at"] == uuid7.instant(row["id"]) == after(microseconds=123_457)


async def test_a_fire_of_a_recurring_job_is_sent_by_its_run(connection: Conn) -> None:
    """C15: per run."""
    await listen(connection)
    async with connection.transaction():
        (job,) = await recurring_jobs.submit(connection, TESTER, [{"task": "a", "schedule": {"cron": "*/15 * * * *"}}], now=NOW)
    await connection.execute("UPDATE sexton.runs SET state = 'ready' WHERE job_id = $1", job.id)
    worker_id = await enlist(connection)
    (claimed,) = await claim(connection, worker_id, now=after(minutes=15))
    await finish(connection, claimed.lease, DONE, now=after(minutes=15))
    (event,) = await told(connection)
    assert (event["data"]["job_id"], event["data"]["run_id"]) == (str(job.id), str(claimed.run_id))
    assert event["data"]["fire_at"] == "2026-03-04T12:15:00+00:00"


async def test_runs_that_end_together_are_sent_together_however_many_they_are(connection: Conn) -> None:
    """C15: 2,500 runs in one statement, more than one part of deliveries contains."""
    await listen(connection)
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 2_500)
    claimed = await claim(connection, worker_id, limit=2_500)
    await runs.finish(connection, [run.report(one.lease, DONE, Random(1)) for one in claimed], now=NOW)
    events = await told(connection)
    assert {event["data"]["job_id"] for event in events} == {str(one.lease.job_id) for one in claimed}
    assert len(events) == 2_500


async def test_the_limits_of_a_tenant_do_not_apply_to_deliveries(connection: Conn) -> None:
    """C15, C9: otherwise a full backlog would keep runs from ending. Deliveries do not count against the tenant's limits."""
    await listen(connection)
    limits = tenant_settings(waiting_max=1, submit_rate=0.001, submit_burst=1)
    await tenants.put(connection, TESTER, "acme", limits, now=NOW)
    worker_id = await enlist(connection)
    await submit(connection, tenant="acme")
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, DONE)
    assert await kinds(connection) == ["completed"]
    (row,) = await connection.fetch("SELECT counted FROM sexton.runs WHERE task = $1", HTTP_TASK)
    assert row["counted"] is False
    assert await connection.fetch("SELECT FROM sexton.held_deliveries") == []


async def test_reports_that_go_one_by_one_wait_for_their_deliveries_once(connection: Conn, database_url: str) -> None:
    """C15, C4: 20 waits of 50 ms take a second or more, on any machine. The best of three tries counts."""
    await listen(connection)
    worker_id = await enlist(connection)
    rival = await asyncpg.connect(database_url)
    took_s = []
    for _ in range(3):
        await submit_many(connection, [submission("a", {})] * 20)
        claimed = await claim(connection, worker_id)
        reports = [run.report(one.lease, DONE, Random(1)) for one in claimed]
        async with rival.transaction():
            await rival.execute("LOCK TABLE sexton.jobs IN SHARE MODE")
            begun_s = time.perf_counter()
            finished, locked = await runs.finish_each(connection, reports, now=NOW)
            took_s.append(time.perf_counter() - begun_s)
        assert (len(finished), locked) == (20, set())
    await rival.close()
    assert min(took_s) < 1.0
    assert await connection.fetchval("SELECT count(*) FROM sexton.held_deliveries") == 60


async def test_a_delivery_that_cannot_be_submitted_keeps_no_run_from_ending_and_is_not_lost(connection: Conn) -> None:
    """C15: it is held, and submitted when that is possible."""
    await listen(connection)
    await connection.execute(f"ALTER TABLE sexton.jobs ADD CONSTRAINT broken CHECK (task <> '{HTTP_TASK}') NOT VALID")
    job_id = await ended(connection, BROKEN)
    assert (await jobs.show(connection, job_id)).status == "failed"
    assert await kinds(connection) == []
    assert await subscription_rows.submit_held(connection, limit=10, now=after(minutes=1)) == (0, 2)
    await connection.execute("ALTER TABLE sexton.jobs DROP CONSTRAINT broken")
    assert await subscription_rows.submit_held(connection, limit=10, now=after(minutes=2)) == (2, 0)
    assert await kinds(connection) == ["dead_lettered", "failed"]
    assert await subscription_rows.submit_held(connection, limit=10, now=after(minutes=3)) == (0, 0)


async def test_only_runs_that_end_during_the_subscription_are_sent(connection: Conn) -> None:
    await ended(connection, DONE)
    await listen(connection)
    await ended(connection, DONE)
    assert await subscription_rows.remove(connection, "all")
    assert not await subscription_rows.remove(connection, "all")
    await ended(connection, DONE)
    assert len(await told(connection)) == 1


async def test_a_subscription_is_returned_unchanged_and_replaced_as_a_whole(connection: Conn) -> None:
    await listen(connection, tenant="acme", kinds=["missed", "failed"], paused=True)
    await listen(connection, now=after(seconds=5), queue="mail", paused=True)
    known = await subscription_rows.get(connection, "all")
    assert known is not None
    assert (tuple(known.kinds), known.tenant, known.queue) == (KINDS, None, "mail")
    assert (known.paused_at, known.created_at, known.updated_at) == (NOW, NOW, after(seconds=5))
    assert known.delivery.policy is not None
    assert known.delivery.policy.target == HOOK
    await listen(connection, "b")
    assert [one.name for one in await subscription_rows.find(connection)] == ["all", "b"]
    assert [one.name for one in await subscription_rows.find(connection, after="all", limit=1)] == ["b"]
    assert await subscription_rows.get(connection, "c") is None


async def test_the_database_rejects_an_unknown_kind(connection: Conn) -> None:
    await listen(connection)
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE sexton.subscriptions SET kinds = '{started}'")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute("UPDATE sexton.subscriptions SET kinds = '{}'")


async def delivered(connection: Conn, *outcomes: Outcome, now: datetime = NOW) -> list[UUID]:
    """Deliveries whose first try had this outcome, oldest first; their job ids."""
    for _ in outcomes:
        await ended(connection, DONE, now=now)
    worker_id = await enlist(connection, tasks=[HTTP_TASK], now=now)
    claimed = await claim(connection, worker_id, tasks=[HTTP_TASK], now=now)
    for one, outcome in zip(claimed, outcomes, strict=True):
        await finish(connection, one.lease, outcome, now=now)
    return [one.lease.job_id for one in claimed]


async def test_a_replay_sends_the_same_message_again_whether_it_was_delivered_or_buried(connection: Conn) -> None:
    """C15: the message's id is made from the job and its fire; both stay."""
    await listen(connection)
    ids = await delivered(connection, DONE, BROKEN, FLAKY)
    before = {row["job_id"]: row["fire_at"] for row in await connection.fetch("SELECT job_id, fire_at FROM sexton.executions")}
    async with connection.transaction():
        assert await subscriptions.replay(connection, TESTER, "all", ids, now=after(hours=1)) == sorted(ids[:2])
    worker_id = await enlist(connection, tasks=[HTTP_TASK], now=after(hours=1))
    again = await claim(connection, worker_id, tasks=[HTTP_TASK], now=after(hours=1))
    assert {one.lease.job_id: one.fire_at for one in again} == {job_id: before[job_id] for job_id in ids[:2]}
    for one in again:
        await finish(connection, one.lease, DONE, now=after(hours=1))
    assert await dead_letters.find(connection, dead_letters.Filter()) == []
    async with connection.transaction():
        assert await subscriptions.replay(connection, TESTER, "all", ids[:1], now=after(hours=2)) == ids[:1]
    (row,) = await connection.fetch("SELECT seq FROM sexton.runs WHERE job_id = $1", ids[0])
    assert row["seq"] == 2


async def test_a_replay_goes_to_the_current_target_of_the_subscription(connection: Conn) -> None:
    """C15: otherwise a corrected address would not help failed deliveries."""
    await listen(connection)
    (job_id,) = await delivered(connection, BROKEN)
    elsewhere = msgspec.structs.replace(HOOK, url="https://new.example/hook")
    await listen(connection, target=elsewhere)
    async with connection.transaction():
        await subscriptions.replay(connection, TESTER, "all", [job_id], now=NOW)
    worker_id = await enlist(connection, tasks=[HTTP_TASK])
    (again,) = await claim(connection, worker_id, tasks=[HTTP_TASK])
    assert again.lease.policy.target == elsewhere
    assert json.loads(again.lease.policy_json or "")["delivers"]["kind"] == "completed"


async def test_only_its_own_deliveries_are_replayed(connection: Conn) -> None:
    await listen(connection)
    (job_id,) = await delivered(connection, DONE)
    other = await ended(connection, DONE)
    await listen(connection, "b")
    async with connection.transaction():
        assert await subscriptions.replay(connection, TESTER, "b", [job_id, other], now=NOW) == []
        assert await subscriptions.replay(connection, TESTER, "gone", [job_id], now=NOW) == []


async def test_two_replays_at_once_send_it_once(connection: Conn, rival: Conn) -> None:
    """Rule "a replay consumes its letter"."""
    await listen(connection)
    (job_id,) = await delivered(connection, DONE)
    async with connection.transaction():
        assert await subscriptions.replay(connection, TESTER, "all", [job_id], now=NOW) == [job_id]
    async with rival.transaction():
        assert await subscriptions.replay(rival, TESTER, "all", [job_id], now=NOW) == []


async def test_undelivered_ones_are_found_and_cancelled(connection: Conn) -> None:
    await listen(connection)
    await delivered(connection, DONE, BROKEN)
    waiting = [await ended(connection, DONE) for _ in range(3)]
    worker_id = await enlist(connection, tasks=[HTTP_TASK])
    (running,) = await claim(connection, worker_id, tasks=[HTTP_TASK], limit=1)
    found = await subscription_rows.undelivered(connection, "all", limit=2)
    more = await subscription_rows.undelivered(connection, "all", before=found.looked_until, limit=10)
    assert more.looked_until is None
    ids = [*found.job_ids, *more.job_ids]
    assert len(ids) == len(waiting)
    async with connection.transaction():
        assert await subscriptions.cancel(connection, TESTER, ids, reason="gone", now=NOW) == 3
    log = await subscription_rows.deliveries(connection, "all", JobFilter(status="cancelled"), limit=10)
    assert len(log.rows) == 2
    (row,) = await connection.fetch("SELECT id FROM sexton.runs WHERE cancel_requested_at IS NOT NULL")
    assert row["id"] == running.run_id


async def test_the_log_shows_the_answer(connection: Conn) -> None:
    """C15: the status of the answer, from the result or from the message of the error."""
    await listen(connection)
    refused = Failed(ErrorInfo("HttpError", "POST https://hooks.example/sexton answered 410: gone"), permanent=True)
    ids = await delivered(connection, DONE, refused, FLAKY)
    await connection.execute("UPDATE sexton.executions SET result = '{\"status\": 204}' WHERE job_id = $1", ids[0])
    log = await subscription_rows.deliveries(connection, "all", JobFilter(), limit=10)
    assert {one.job.id: (one.job.status, one.response_status) for one in log.rows} == {
        ids[0]: ("completed", 204),
        ids[1]: ("failed", 410),
        ids[2]: ("pending", None),
    }
    page = await subscription_rows.deliveries(connection, "all", JobFilter(), limit=2)
    rest = await subscription_rows.deliveries(connection, "all", JobFilter(), before=page.next_before, limit=2)
    assert [one.job.id for one in (*page.rows, *rest.rows)] == sorted(ids, reverse=True)


async def test_an_edited_delivery_is_still_a_delivery(connection: Conn) -> None:
    """Otherwise an edit of its timeout would start a loop of events."""
    await listen(connection)
    await ended(connection, DONE)
    (row,) = await connection.fetch("SELECT id FROM sexton.jobs WHERE task = $1", HTTP_TASK)
    changes = definition_change.Changes(timeout_s=5.0, policy={"retry": Retry.never()})
    await one_time_jobs.edit(connection, TESTER, AtVersion(row["id"]), changes, now=after(seconds=1))
    worker_id = await enlist(connection, tasks=[HTTP_TASK])
    (claimed,) = await claim(connection, worker_id, tasks=[HTTP_TASK])
    await finish(connection, claimed.lease, BROKEN)
    assert await kinds(connection) == ["completed"]
    assert len((await subscription_rows.deliveries(connection, "all", JobFilter(), limit=10)).rows) == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("undelivered", "'webhook:all', '7fffffff-0000-0000-0000-000000000000', 500"),
        ("leases", "ARRAY['00000000-0000-7000-8000-000000000000'::uuid]"),
        ("retarget", "ARRAY['00000000-0000-7000-8000-000000000000'::uuid], 'all'"),
        ("letters", "ARRAY['00000000-0000-7000-8000-000000000000'::uuid]"),
        ("reopen", "NULL, ARRAY['00000000-0000-7000-8000-000000000000'::uuid]"),
    ],
)
async def test_no_statement_scans_a_table(database_url: str, name: str, arguments: str) -> None:
    """B10: planned while the tables were empty, as in a service that started early."""
    service = await asyncpg.connect(database_url, server_settings=_SERVER_SETTINGS)
    await service.execute(f"PREPARE asked AS {statements('sexton.store.work.subscriptions')[name]}")
    plan = "\n".join(row[0] for row in await service.fetch(f"EXPLAIN EXECUTE asked ({arguments})"))
    await service.close()
    assert "Seq Scan" not in plan, plan


async def test_a_run_ends_though_its_delivery_would_have_to_wait(connection: Conn, rival: Conn) -> None:
    """C15, rule "never wait inside a batch": a session without a lock timeout does not wait, and the delivery is submitted
    later."""
    await listen(connection)
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await connection.execute("SET lock_timeout = 0")
    async with rival.transaction():
        await rival.execute("LOCK TABLE sexton.jobs IN SHARE MODE")
        async with asyncio.timeout(LONG_S):
            await finish(connection, claimed.lease, DONE)
            assert await connection.fetchval("SELECT status FROM sexton.endings WHERE job_id = $1", job_id) == "completed"
            assert await subscription_rows.submit_held(connection, limit=10, now=NOW) == (0, 1)
    assert await told(connection) == []
    assert await subscription_rows.submit_held(connection, limit=10, now=NOW) == (1, 0)
    assert [event["data"]["job_id"] for event in await told(connection)] == [str(job_id)]
