"""Finish: the only way in which a run ends or is handed back, and the fence that keeps other workers from doing it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from sexton.domain import run
from sexton.domain.job import submission
from sexton.domain.outcome import Cancelled, ErrorInfo, Failed, Lost, Outcome, Released, Snoozed, Succeeded, TimedOut, status_of
from sexton.domain.partition import ALL, Scan
from sexton.domain.retry import Retry
from sexton.operations import cancel
from sexton.operations.cancel import cancel as cancel_job
from sexton.store.fleet import workers
from sexton.store.work import dead_letters, jobs, runs
from tests.callers import TESTER
from tests.store.support import (
    BROKEN,
    FLAKY,
    NOW,
    after,
    blocked_task,
    claim,
    claim_suspects,
    enlist,
    finish,
    plain,
    run_row,
    snapshot,
    status,
    submit,
    submit_many,
)

if TYPE_CHECKING:
    from sexton.domain.run import Claimed
    from tests.store.support import Conn

RNG = Random(1)
ANY_OUTCOME: list[Outcome] = [
    Succeeded(),
    BROKEN,
    FLAKY,
    TimedOut("slow"),
    Cancelled(),
    Snoozed(5),
    Released("drain"),
    Lost("gone"),
]


def _kind(outcome: object) -> str:
    return type(outcome).__name__


async def _taken(connection: Conn, **options: Any) -> Claimed:
    worker_id = await enlist(connection)
    await submit(connection, **options)
    (claimed,) = await claim(connection, worker_id)
    return claimed


# The fence.


@pytest.mark.parametrize(
    "wrong", [{"token": 0}, {"token": 2}, {"worker_id": UUID(int=7)}, {"worker_id": None}, {"run_id": UUID(int=7)}], ids=str
)
async def test_a_report_under_another_fence_changes_nothing(connection: Conn, wrong: dict[str, Any]) -> None:
    """C4: worker and token both, for every outcome."""
    claimed = await _taken(connection)
    before = await snapshot(connection)
    for outcome in ANY_OUTCOME:
        assert await finish(connection, msgspec.structs.replace(claimed.lease, **wrong), outcome) is None
    assert await snapshot(connection) == before


@pytest.mark.parametrize("outcome", ANY_OUTCOME, ids=_kind)
async def test_a_report_counts_once(connection: Conn, outcome: Any) -> None:
    """C4, B1: a repeated report is rejected, and the result of the first can be read."""
    claimed = await _taken(connection)
    assert await finish(connection, claimed.lease, outcome) is not None
    before = await snapshot(connection)
    assert await finish(connection, claimed.lease, outcome) is None
    assert await snapshot(connection) == before
    recorded, held = await runs.recorded_outcome(connection, claimed)
    assert recorded is not None
    assert (recorded.status, held) == (status_of(outcome), False)


async def test_recorded_outcome_returns_the_recorded_end_and_a_loss_is_never_the_workers_own_report(connection: Conn) -> None:
    """C4: a worker that reports a failure after ctx.transaction() has committed gets the recorded success."""
    claimed = await _taken(connection)
    await finish(connection, claimed.lease, Succeeded(reason="done before"))
    assert await runs.recorded_outcome(connection, claimed, "failed") == runs.RecordedOutcome(
        runs.Recorded("succeeded", "done before", "completed"), False
    )
    swept = await _taken(connection)
    await finish(connection, swept.lease, Lost("its worker died"))
    for word in ("lost", "failed", "succeeded"):
        assert await runs.recorded_outcome(connection, swept, word) == runs.RecordedOutcome(None, held=False)


async def test_a_late_report_of_the_first_claim_cannot_close_the_second_of_the_same_worker(connection: Conn) -> None:
    """C4: the token is the fence; worker and attempt are the same in both claims."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (first,) = await claim(connection, worker_id)
    await finish(connection, first.lease, Released("drain"))
    (second,) = await claim(connection, worker_id)
    assert (first.lease.worker_id, first.lease.attempt) == (second.lease.worker_id, second.lease.attempt)
    for outcome in ANY_OUTCOME:
        assert await finish(connection, first.lease, outcome) is None
    assert await status(connection, job_id) == "running"
    assert await finish(connection, second.lease, Succeeded()) is not None


async def test_a_late_finisher_cannot_close_the_next_attempt(connection: Conn) -> None:
    """C4: a worker is declared lost, another claims the run, then the first one continues."""
    late, heir = await enlist(connection), await enlist(connection)
    job_id = await submit(connection)
    (first,) = await claim(connection, late)
    await workers.declare_lost(connection, {late: 0}, now=after(seconds=6))
    (overdue,) = await runs.abandoned(connection, lease_s=6, limit=10, now=after(seconds=6))
    await finish(connection, overdue.lease, Lost("its worker died"), now=after(seconds=6))
    (second,) = await claim(connection, heir, now=after(seconds=7))
    assert await finish(connection, first.lease, Succeeded(), now=after(seconds=8)) is None
    assert await runs.recorded_outcome(connection, second) == runs.RecordedOutcome(recorded=None, held=True)
    assert await finish(connection, second.lease, Succeeded(), now=after(seconds=9)) is not None
    tries = await jobs.executions(connection, job_id)
    assert [(one.status, one.worker_id, one.token) for one in tries] == [("lost", late, 1), ("succeeded", heir, 2)]


async def test_a_report_about_an_unheld_run_cannot_end_a_held_one(connection: Conn) -> None:
    """C4, A5: cancel and expiry name the fence they saw, so a claim in between wins."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (seen,) = await runs.of_job(connection, job_id)
    await claim(connection, worker_id)
    assert await finish(connection, seen, Cancelled()) is None
    assert await status(connection, job_id) == "running"


async def test_a_run_without_a_lease_cannot_be_handed_back(connection: Conn) -> None:
    """C4: 'again' without a lease would be a promotion without its checks."""
    job_id = await submit(connection, delay="1h")
    (seen,) = await runs.of_job(connection, job_id)
    assert await finish(connection, seen, Released("?")) is None
    assert ((await run_row(connection, job_id)) or {})["state"] == "waiting"


# What follows an outcome


async def test_success_ends_the_run_and_completes_the_job(connection: Conn) -> None:
    """A8, A9, C14: the run is gone, one ending, one execution with its result."""
    claimed = await _taken(connection, payload={"n": 1})
    answer = await finish(
        connection,
        claimed.lease,
        Succeeded({"sum": 3}),
        now=after(seconds=9),
        started_s=1.0,
        took_s=2.5,
        result=msgspec.Raw(b'{"sum": 3}'),
        progress=msgspec.Raw(b"0.5"),
        output="hello",
    )
    assert answer is not None
    assert answer.state is None
    job_id = claimed.lease.job_id
    assert await run_row(connection, job_id) is None
    (execution,) = await jobs.executions(connection, job_id)
    assert (execution.id, execution.status, execution.attempt, execution.token) == (answer.execution_id, "succeeded", 1, 1)
    assert (execution.started_at, execution.ended_at) == (after(seconds=1), after(seconds=3.5))
    assert (plain(execution.result_json), plain(execution.progress_json), execution.output) == ({"sum": 3}, 0.5, "hello")
    assert (execution.worker_id, execution.due_at, execution.origin) == (claimed.lease.worker_id, NOW, "now")
    shown = await jobs.show(connection, job_id)
    assert (shown.status, shown.ended_at, shown.execution_id) == ("completed", after(seconds=9), execution.id)
    ending = await jobs.ending(connection, job_id)
    assert ending == jobs.Ending("completed", '{"sum": 3}', None, None)


async def test_a_permanent_failure_is_buried_with_its_data(connection: Conn) -> None:
    """C7: handler, payload, version and attempts as they were."""
    claimed = await _taken(connection, payload={"n": 1}, name="n", tenant="acme", priority="high")
    error = ErrorInfo("ValueError", "no such user", "trace", ("ValueError",))
    answer = await finish(connection, claimed.lease, Failed(error, permanent=True), now=after(seconds=2))
    assert answer is not None
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    lease = claimed.lease
    assert (letter.id, letter.job_id, letter.run_id) == (answer.execution_id, lease.job_id, lease.run_id)
    assert (letter.task, letter.tenant, letter.queue, letter.lane, letter.name) == ("a", "acme", "default", 1, "n")
    assert (plain(letter.payload_json), letter.error, letter.attempts, letter.lost_count) == ({"n": 1}, error, 1, 0)
    assert (letter.permanent, letter.status, letter.buried_at, letter.replay_at) == (True, "failed", after(seconds=2), None)
    assert (letter.fire_at, letter.job_version, letter.origin, letter.seq) == (NOW, 1, "now", 0)
    assert letter.reason == "permanent error: ValueError: no such user"
    assert await status(connection, lease.job_id) == "failed"
    ending = await jobs.ending(connection, lease.job_id)
    assert ending is not None
    assert (ending.status, ending.error) == ("failed", error)


async def test_the_database_adds_the_delay_of_a_retry(connection: Conn) -> None:
    """C5, B9, rule "one clock reading per statement": a delay, never a worker's clock."""
    claimed = await _taken(connection, retry=Retry.after("10s", jitter=0))
    answer = await finish(connection, claimed.lease, FLAKY, now=after(seconds=3))
    assert answer is not None
    assert answer.state == "waiting"
    row = await run_row(connection, claimed.lease.job_id)
    assert row is not None
    assert (row["due_at"], row["fire_at"], row["attempt"], row["token"]) == (after(seconds=13), NOW, 1, 1)
    assert (row["worker_id"], row["claimed_at"], row["must_end_at"]) == (None, None, None)
    assert await status(connection, claimed.lease.job_id) == "pending"


async def test_a_retry_without_delay_is_ready_at_once(connection: Conn) -> None:
    """C5."""
    claimed = await _taken(connection, retry=Retry.immediate(max_attempts=2))
    answer = await finish(connection, claimed.lease, FLAKY, now=after(seconds=3))
    assert answer is not None
    assert answer.state == "ready"
    (again,) = await claim(connection, claimed.lease.worker_id, now=after(seconds=3))  # type: ignore[arg-type]
    assert (again.lease.attempt, again.due_at) == (2, after(seconds=3))
    last = await finish(connection, again.lease, FLAKY, now=after(seconds=4))
    assert last is not None
    assert last.state is None
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    assert (letter.attempts, letter.permanent, letter.reason) == (2, False, "attempt 2 of 2 failed: ValueError: flaky")


async def test_losses_have_a_budget_of_their_own(connection: Conn) -> None:
    """C4, C7, rule "losses have their own budget": a poison job ends in the dead letters after `max_lost` workers, without a
    spent attempt."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, max_lost=3, retry=Retry.immediate(max_attempts=2))
    for expected in ("ready", "quarantined", None):
        (claimed,) = await claim(connection, worker_id) or await claim_suspects(connection)
        assert claimed.lease.attempt == 1
        answer = await finish(connection, claimed.lease, Lost("gone"))
        assert answer is not None
        assert answer.state == expected
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    assert (letter.lost_count, letter.status, letter.job_id) == (3, "lost", job_id)
    assert [one.status for one in await jobs.executions(connection, job_id)] == ["lost"] * 3


async def test_hand_backs_and_snoozes_spend_nothing(connection: Conn) -> None:
    """C5, C12, rule "losses have their own budget": any number of them."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, retry=Retry.never(), max_lost=1)
    outcomes: list[Outcome] = [Released("drain"), Snoozed(0)]
    for outcome in outcomes * 5:
        (claimed,) = await claim(connection, worker_id)
        assert (claimed.lease.attempt, claimed.lease.lost_count) == (1, 0)
        assert await finish(connection, claimed.lease, outcome) is not None
    assert await status(connection, job_id) == "pending"


async def test_a_snooze_waits_its_time(connection: Conn) -> None:
    """C5."""
    claimed = await _taken(connection)
    await finish(connection, claimed.lease, Snoozed(90.0), now=after(seconds=10))
    row = await run_row(connection, claimed.lease.job_id)
    assert row is not None
    assert (row["state"], row["due_at"], row["attempt"]) == ("waiting", after(seconds=100), 0)


async def test_at_most_once_is_never_tried_again(connection: Conn) -> None:
    """C6, rule "bounded prefetch": the committed claim was the start, whatever happened to it."""
    worker_id = await enlist(connection)
    outcomes: list[Outcome] = [FLAKY, TimedOut("slow"), Lost("gone"), Released("drain")]
    for outcome in outcomes:
        job_id = await submit(connection, delivery="at_most_once")
        (claimed,) = await claim(connection, worker_id)
        answer = await finish(connection, claimed.lease, outcome)
        assert answer is not None
        assert answer.state is None, outcome
        assert await status(connection, job_id) == "failed"
    letters = await dead_letters.find(connection, dead_letters.Filter())
    assert [letter.permanent for letter in letters] == [True] * 4


async def test_every_try_leaves_one_row_of_history(connection: Conn) -> None:
    """A9: in order, with status, attempt, reason and error."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, retry=Retry.immediate(max_attempts=2))
    outcomes: list[Outcome] = [Released("drain"), Lost("gone"), FLAKY, TimedOut("over 30 s")]
    for n, outcome in enumerate(outcomes):
        now = after(seconds=n)
        (claimed,) = await claim(connection, worker_id, now=now)
        await finish(connection, claimed.lease, outcome, now=now, started_s=0.0, took_s=0.5)
    found = [(one.status, one.attempt, one.token, one.reason) for one in await jobs.executions(connection, job_id)]
    assert found == [
        ("released", 1, 1, "drain"),
        ("lost", 1, 2, "gone"),
        ("failed", 1, 3, None),
        ("timed_out", 2, 4, "attempt 2 of 2 failed: over 30 s"),
    ]


async def test_a_try_that_never_began_has_no_start(connection: Conn) -> None:
    """A9: cancelled while waiting."""
    job_id = await submit(connection, delay="1h")
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=after(seconds=5))
    (execution,) = await jobs.executions(connection, job_id)
    assert (execution.started_at, execution.ended_at, execution.worker_id) == (None, after(seconds=5), None)


async def test_a_batch_of_mixed_outcomes_is_one_statement(connection: Conn) -> None:
    """Rule "one path in, one path out": each run gets its own outcome, runs of other workers are left out."""
    worker_id = await enlist(connection)
    ids = await submit_many(connection, [submission("a", {"n": n}) for n in range(6)])
    claimed = await claim(connection, worker_id)
    outcomes: list[Any] = [Succeeded(), BROKEN, FLAKY, Snoozed(5), Released("drain"), Cancelled()]
    reports = [run.report(one.lease, outcome, RNG) for one, outcome in zip(claimed, outcomes, strict=True)]
    reports.insert(3, msgspec.structs.replace(reports[0], run_id=uuid4()))
    reports.reverse()
    answers = {answer.run_id: answer.state for answer in await runs.finish(connection, reports, now=NOW)}
    assert [answers[one.lease.run_id] for one in claimed] == [None, None, "waiting", "waiting", "ready", None]
    assert len(answers) == 6
    found = [await status(connection, job_id) for job_id in ids]
    assert found == ["completed", "failed", "pending", "pending", "pending", "cancelled"]
    assert await connection.fetchval("SELECT count(DISTINCT id) FROM sexton.executions") == 6


async def test_a_run_twice_in_one_batch_is_reported_once(connection: Conn) -> None:
    """B1, A9: a doubled report makes neither two endings nor two rows of history, for any pair of outcomes."""
    worker_id = await enlist(connection)
    for one, other in product(ANY_OUTCOME, repeat=2):
        job_id = await submit(connection, priority="critical")
        (claimed,) = await claim(connection, worker_id, limit=1)
        assert claimed.lease.job_id == job_id
        answers = await runs.finish(connection, [run.report(claimed.lease, outcome, RNG) for outcome in (one, other)], now=NOW)
        assert len(answers) == 1
        assert len(await jobs.executions(connection, job_id)) == 1, (one, other)
        if answers[0].state is not None:
            async with connection.transaction():
                await cancel_job(connection, TESTER, job_id, now=NOW)


@pytest.mark.parametrize("stale_first", [True, False])
async def test_a_stale_report_beside_the_right_one_has_no_effect(connection: Conn, stale_first: bool) -> None:
    """C4: the outcome under the fence counts, also if both are in one batch."""
    claimed = await _taken(connection)
    stale = run.report(msgspec.structs.replace(claimed.lease, token=0), Snoozed(3600), RNG, output="stale")
    right = run.report(claimed.lease, Snoozed(5), RNG, output="right")
    answers = await runs.finish(connection, [stale, right] if stale_first else [right, stale], now=NOW)
    assert len(answers) == 1
    row = await run_row(connection, claimed.lease.job_id)
    assert row is not None
    assert row["due_at"] == after(seconds=5)
    (execution,) = await jobs.executions(connection, claimed.lease.job_id)
    assert execution.output == "right"


async def test_an_empty_batch_returns_nothing(connection: Conn) -> None:
    assert await runs.finish(connection, [], now=NOW) == []


# Cancels in between


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (FLAKY, "cancelled"),
        (BROKEN, "cancelled"),
        (Lost("gone"), "cancelled"),
        (Snoozed(5), "cancelled"),
        (Released("drain"), "cancelled"),
        (TimedOut("slow"), "cancelled"),
        (Cancelled(), "cancelled"),
        (Succeeded(), "completed"),
    ],
    ids=lambda value: value if isinstance(value, str) else _kind(value),
)
async def test_a_requested_cancel_means_no_further_attempt(connection: Conn, outcome: Any, expected: str) -> None:
    """A5, rule "losses have their own budget": whatever the outcome; a success before the cancel is a success."""
    claimed = await _taken(connection)
    async with connection.transaction():
        assert await cancel_job(connection, TESTER, claimed.lease.job_id, now=NOW) == cancel.Cancellation(0, 1)
    answer = await finish(connection, claimed.lease, outcome)
    assert answer is not None
    assert answer.state is None
    assert await status(connection, claimed.lease.job_id) == expected
    assert await dead_letters.find(connection, dead_letters.Filter()) == []


@pytest.mark.parametrize("outcome", [FLAKY, Snoozed(5), Released("drain"), Lost("gone")], ids=_kind)
async def test_a_retry_in_flight_loses_against_a_cancel_that_commits_first(connection: Conn, rival: Conn, outcome: Any) -> None:
    """A5, rule "losses have their own budget": the waiting report changes nothing, its worker still holds the run, and its next
    try ends the run."""
    claimed = await _taken(connection)
    async with connection.transaction():
        await cancel_job(connection, TESTER, claimed.lease.job_id, now=NOW)
        report = await blocked_task(connection, rival, finish(rival, claimed.lease, outcome))
    assert await report is None
    assert await runs.recorded_outcome(connection, claimed) == runs.RecordedOutcome(recorded=None, held=True)
    assert await finish(rival, claimed.lease, outcome) is not None
    assert await status(connection, claimed.lease.job_id) == "cancelled"


@pytest.mark.parametrize(("outcome", "expected"), [(Succeeded(), "completed"), (BROKEN, "cancelled")])
async def test_an_end_in_flight_commits_beside_a_cancel(connection: Conn, rival: Conn, outcome: Any, expected: str) -> None:
    """A5: one ending, and a cancelled job has no dead letter."""
    claimed = await _taken(connection)
    async with connection.transaction():
        await cancel_job(connection, TESTER, claimed.lease.job_id, now=NOW)
        report = await blocked_task(connection, rival, finish(rival, claimed.lease, outcome))
    assert await report is not None
    assert await status(connection, claimed.lease.job_id) == expected
    assert await dead_letters.find(connection, dead_letters.Filter()) == []


async def test_sweeper_and_worker_cannot_both_end_a_run(connection: Conn, rival: Conn) -> None:
    """C4, B1: the sweeper has locked the row; the worker's report waits and is then rejected."""
    claimed = await _taken(connection, timeout="1s")
    async with connection.transaction():
        (overdue,) = await runs.overrunning(connection, limit=10, now=after(minutes=1))
        assert await runs.overrunning(rival, limit=10, now=after(minutes=1)) == [], "another sweeper skips it"
        report = await blocked_task(connection, rival, finish(rival, claimed.lease, Succeeded()))
        assert await finish(connection, overdue.lease, TimedOut("hung"), now=after(minutes=1)) is not None
    assert await report is None


async def test_two_finishers_of_the_same_runs_in_opposite_order_do_not_deadlock(connection: Conn, rival: Conn) -> None:
    """Rule "lock in id order": locks are taken in id order, whatever the order of the reports and of the join."""
    worker_id = await enlist(connection)
    for _ in range(5):
        await submit_many(connection, [submission("a", {})] * 1000)
        claimed = await claim(connection, worker_id, limit=1000)
        reports = [run.report(one.lease, FLAKY if n % 2 else Succeeded(), RNG) for n, one in enumerate(claimed)]
        one, other = await asyncio.gather(runs.finish(connection, reports, now=NOW), runs.finish(rival, reports[::-1], now=NOW))
        assert len(one) + len(other) == 1000


# Bad data.


@pytest.mark.parametrize(
    "bad",
    [
        {"result": msgspec.Raw(b'"\\ud800"')},
        {"result": msgspec.Raw(b'"\\u0000"')},
        {"result": msgspec.Raw(b"{broken")},
        {"output": "\x00"},
        {"status": "exploded"},
        {"next": "end", "status": "succeeded", "ending": "vanished"},
        {"took_s": float(10**300)},
    ],
    ids=["surrogate", "nul", "not json", "nul in output", "status", "ending", "span"],
)
async def test_a_report_with_bad_data_fails_the_whole_batch_and_changes_nothing(connection: Conn, bad: dict[str, Any]) -> None:
    """Rule "bisect bad batches": so that the reporter can bisect the batch until it has found the bad report."""
    worker_id = await enlist(connection)
    await submit_many(connection, [submission("a", {})] * 3)
    reports = [run.report(one.lease, Succeeded(), RNG, started_s=0.0, took_s=0.0) for one in await claim(connection, worker_id)]
    before = await snapshot(connection)
    with pytest.raises(asyncpg.PostgresError):
        await runs.finish(connection, [reports[0], msgspec.structs.replace(reports[1], **bad), reports[2]], now=NOW)
    assert await snapshot(connection) == before
    assert len(await runs.finish(connection, [reports[0], reports[2]], now=NOW)) == 2


@pytest.mark.made_up_rows
async def test_a_job_that_has_ended_cannot_end_again(connection: Conn) -> None:
    """B1: the primary key of endings is the backstop."""
    claimed = await _taken(connection)
    await connection.execute(
        "INSERT INTO sexton.endings (job_id, execution_id, ended_at, status) VALUES ($1, $2, $3, 'completed')",
        claimed.lease.job_id,
        uuid4(),
        NOW,
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await finish(connection, claimed.lease, Succeeded())
    assert await run_row(connection, claimed.lease.job_id) is not None


# Keys, output, time.


async def test_success_completes_the_idempotency_key_and_keeps_it_seven_days(connection: Conn) -> None:
    """C6: the completion record."""
    claimed = await _taken(connection, key="k", key_ttl="1h")
    answer = await finish(connection, claimed.lease, Succeeded(), now=after(minutes=1), key="k")
    assert answer is not None
    row = await connection.fetchrow("SELECT * FROM sexton.idempotency_keys")
    assert row is not None
    assert (row["completed_at"], row["execution_id"]) == (after(minutes=1), answer.execution_id)
    assert row["expires_at"] == after(minutes=1) + timedelta(days=7)


@pytest.mark.parametrize("outcome", [BROKEN, FLAKY, Cancelled(), Released("drain")], ids=_kind)
async def test_anything_but_success_leaves_the_key_incomplete(connection: Conn, outcome: Any) -> None:
    """C6."""
    claimed = await _taken(connection, key="k")
    await finish(connection, claimed.lease, outcome, key="k")
    assert await connection.fetchval("SELECT completed_at FROM sexton.idempotency_keys") is None


async def test_a_job_completes_only_the_key_that_is_still_its_own(connection: Conn) -> None:
    """C6, A10: its key expired and now belongs to a job with another body, which must still run."""
    claimed = await _taken(connection, key="k", key_ttl="1h", payload={"n": 1})
    other = await submit(connection, key="k", payload={"n": 2}, now=after(hours=2))
    await finish(connection, claimed.lease, Succeeded(), now=after(hours=2), key="k")
    (heir,) = await claim(connection, claimed.lease.worker_id, now=after(hours=2))  # type: ignore[arg-type]
    assert (heir.lease.job_id, heir.completed_by) == (other, None)


async def test_a_completion_by_the_new_job_of_a_key_does_not_stop_its_former_job(connection: Conn) -> None:
    """C6, A10: the other way round."""
    worker_id = await enlist(connection)
    first = await submit(connection, key="k", key_ttl="1h", payload={"n": 1}, delay="3h")
    await submit(connection, key="k", payload={"n": 2}, now=after(hours=2))
    (heir,) = await claim(connection, worker_id, now=after(hours=2))
    await finish(connection, heir.lease, Succeeded(), now=after(hours=2), key="k")
    await runs.promote(connection, Scan(ALL, 10), now=after(hours=3))
    (claimed,) = await claim(connection, worker_id, now=after(hours=3))
    assert (claimed.lease.job_id, claimed.completed_by) == (first, None)


async def test_live_output_is_visible_and_moves_into_history(connection: Conn) -> None:
    """C13."""
    claimed = await _taken(connection)
    lease = claimed.lease
    assert lease.worker_id is not None
    progress = {"run_id": lease.run_id, "token": lease.token, "progress": 0.25, "output": "half"}
    await runs.tell(connection, lease.worker_id, [progress], now=NOW)
    await runs.tell(connection, lease.worker_id, [{**progress, "progress": 0.5}], now=NOW)
    assert await jobs.live_output(connection, lease.job_id) == jobs.LiveOutput("0.5", "half")
    await finish(connection, lease, Succeeded(), output="whole", progress=msgspec.Raw(b"1"))
    assert await connection.fetchval("SELECT count(*) FROM sexton.live_output") == 0
    (execution,) = await jobs.executions(connection, lease.job_id)
    assert (execution.output, execution.progress_json) == ("whole", "1")


async def test_output_under_a_lost_lease_is_not_kept(connection: Conn) -> None:
    """C13, C4."""
    claimed = await _taken(connection)
    lease = claimed.lease
    assert lease.worker_id is not None
    progress = {"run_id": lease.run_id, "token": lease.token, "progress": None, "output": "x"}
    await runs.tell(connection, uuid4(), [progress], now=NOW)
    await runs.tell(connection, lease.worker_id, [{**progress, "token": 2}], now=NOW)
    assert await jobs.live_output(connection, lease.job_id) is None


async def test_the_output_of_a_lost_handler_is_kept(connection: Conn) -> None:
    """C13: the sweeper moves its last output into the history."""
    claimed = await _taken(connection)
    lease = claimed.lease
    assert lease.worker_id is not None
    await runs.tell(
        connection, lease.worker_id, [{"run_id": lease.run_id, "token": 1, "progress": 0.9, "output": "nearly"}], now=NOW
    )
    await workers.declare_lost(connection, {lease.worker_id: 0}, now=NOW)
    (overdue,) = await runs.abandoned(connection, lease_s=6, limit=10, now=NOW)
    await finish(connection, overdue.lease, Lost("gone"))
    (execution,) = await jobs.executions(connection, lease.job_id)
    assert (execution.output, execution.progress_json) == ("nearly", "0.9")
    assert await connection.fetchval("SELECT count(*) FROM sexton.live_output") == 0


async def test_output_without_an_end_is_deleted_after_ten_minutes_and_never_that_of_a_live_run(connection: Conn) -> None:
    """C13."""
    claimed = await _taken(connection)
    lease = claimed.lease
    assert lease.worker_id is not None
    await runs.tell(connection, lease.worker_id, [{"run_id": lease.run_id, "token": 1, "progress": 1, "output": "x"}], now=NOW)
    await runs.forget_output(connection, now=after(days=1))
    assert await connection.fetchval("SELECT count(*) FROM sexton.live_output") == 1
    await finish(connection, lease, Succeeded())
    await runs.forget_output(connection, now=after(minutes=9))
    assert await connection.fetchval("SELECT count(*) FROM sexton.live_output") == 1
    await runs.forget_output(connection, now=after(minutes=11))
    assert await connection.fetchval("SELECT count(*) FROM sexton.live_output") == 0


async def test_history_is_found_though_the_clock_was_set_back(connection: Conn) -> None:
    """B9, D4: after a failover the new primary's clock may be behind the old one's."""
    claimed = await _taken(connection)
    await finish(connection, claimed.lease, Succeeded(), now=after(seconds=-2))
    assert (await runs.recorded_outcome(connection, claimed)).recorded is not None
    assert len(await jobs.executions(connection, claimed.lease.job_id)) == 1


async def test_history_of_a_large_batch_is_found_in_frozen_time(connection: Conn) -> None:
    """E10: ids of a batch are ahead of the clock, and the test kit's clock does not move."""
    worker_id = await enlist(connection)
    ids = await submit_many(connection, [submission("a", {})] * 50)
    claimed: list[Claimed] = await claim(connection, worker_id)
    await finish(connection, claimed[-1].lease, Succeeded())
    found: list[UUID] = [one.job_id for one in await jobs.executions(connection, ids[-1])]
    assert found == [ids[-1]]


# What the sweeper looks for


async def test_a_run_with_a_grace_of_its_own_is_not_overrunning_while_it_is_asked_to_stop(connection: Conn) -> None:
    """C3, rule "the sweeper ends overdue runs": the claim uses only the worker's grace."""
    await _taken(connection, timeout=30, grace=60)
    assert await runs.overrunning(connection, limit=10, now=after(seconds=99.9)) == []
    assert len(await runs.overrunning(connection, limit=10, now=after(seconds=100))) == 1


async def test_only_runs_past_timeout_and_grace_are_overrunning(connection: Conn) -> None:
    """C3, rule "the sweeper ends overdue runs": at claim + timeout + grace, while the worker sends heartbeats."""
    claimed = await _taken(connection, timeout="30s")
    assert await runs.overrunning(connection, limit=10, now=after(seconds=39.9)) == []
    (overdue,) = await runs.overrunning(connection, limit=10, now=after(seconds=40))
    assert (overdue.lease.run_id, overdue.lease.token, overdue.held_s) == (claimed.lease.run_id, 1, 40.0)


async def test_a_run_may_outlast_the_silence_of_its_worker(connection: Conn) -> None:
    """C4: a per-job lease longer than the cluster's."""
    worker_id = await enlist(connection)
    short, long = await submit_many(connection, [submission("a", {}), submission("a", {}, lease="60s")])
    await claim(connection, worker_id)
    await workers.declare_lost(connection, {worker_id: 0}, now=after(seconds=6))
    for now, expected in ((after(seconds=6), [short]), (after(seconds=59), [short]), (after(seconds=60), [short, long])):
        found = await runs.abandoned(connection, lease_s=6, limit=10, now=now)
        assert [one.lease.job_id for one in found] == expected


async def test_runs_of_an_unknown_worker_are_abandoned(connection: Conn) -> None:
    """C4: its row is gone, and so are its leases."""
    claimed = await _taken(connection)
    assert await runs.abandoned(connection, lease_s=6, limit=10, now=NOW) == []
    await connection.execute("DELETE FROM sexton.workers")
    (overdue,) = await runs.abandoned(connection, lease_s=6, limit=10, now=NOW)
    assert overdue.lease.run_id == claimed.lease.run_id


async def test_expired_runs_are_those_that_may_never_start(connection: Conn) -> None:
    """C3: the latest start or the deadline has passed, waiting or ready; running ones are not included."""
    worker_id = await enlist(connection)
    waiting = await submit(connection, delay="10s", start_within="5s")
    ready = await submit(connection, deadline="15s")
    running = await submit(connection, deadline="15s", priority="high")
    await submit(connection)
    (claimed,) = await claim(connection, worker_id, limit=1)
    assert claimed.lease.job_id == running
    assert await runs.expired(connection, limit=10, now=after(seconds=14)) == []
    found = await runs.expired(connection, limit=10, now=after(seconds=15))
    assert {one.lease.job_id for one in found} == {waiting, ready}


async def test_a_hand_back_costs_no_more_in_a_large_batch(connection: Conn) -> None:
    """C10: 10,000 calls to a host that is down are handed back together; once, each was compared with all the others."""
    worker_id = await enlist(connection)

    async def each_s(count: int) -> float:
        await submit_many(connection, [submission("a", {})] * count)
        claimed = await claim(connection, worker_id, limit=count)
        reports = [run.report(one.lease, Snoozed(3600), Random(1)) for one in claimed]
        began_at = time.perf_counter()
        assert len(await runs.finish(connection, reports, now=NOW)) == count
        return (time.perf_counter() - began_at) / count

    few_s = min([await each_s(200) for _ in range(3)])
    assert min([await each_s(3000) for _ in range(3)]) < 3 * few_s
