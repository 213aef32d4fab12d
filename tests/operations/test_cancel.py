"""Cancel: a run that has not started never starts, a running one is asked to stop, an ended job answers with a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from sexton.domain.outcome import Cancelled, Snoozed, Succeeded
from sexton.domain.partition import ALL, Scan
from sexton.errors import NotAllowedIn, NotFound
from sexton.operations import cancel, replay
from sexton.operations.cancel import cancel as cancel_job
from sexton.store.work import dead_letters, jobs, runs
from tests.callers import TESTER
from tests.store.support import (
    BROKEN,
    FLAKY,
    NOW,
    after,
    blocked_task,
    bury,
    claim,
    enlist,
    finish,
    run_row,
    status,
    submit,
)

if TYPE_CHECKING:
    from tests.store.support import Conn


async def _cancel(connection: Conn, job_id: UUID) -> cancel.Cancellation:
    async with connection.transaction():
        return await cancel_job(connection, TESTER, job_id, reason="by ada", now=after(seconds=1))


@pytest.mark.parametrize("delay", ["0s", "1h"])
async def test_a_pending_job_never_runs(connection: Conn, delay: str) -> None:
    """A5: ready or waiting."""
    worker_id = await enlist(connection)
    job_id = await submit(connection, delay=delay)
    assert await _cancel(connection, job_id) == cancel.Cancellation(1, 0)
    await runs.promote(connection, Scan(ALL, 10), now=after(hours=2))
    assert await claim(connection, worker_id, now=after(hours=2)) == []
    shown = await jobs.show(connection, job_id)
    assert (shown.status, shown.ended_at) == ("cancelled", after(seconds=1))
    (execution,) = await jobs.executions(connection, job_id)
    assert (execution.status, execution.reason) == ("cancelled", "by ada")


@pytest.mark.parametrize("outcome", [FLAKY, Snoozed(60)])
async def test_a_job_between_two_attempts_never_runs_again(connection: Conn, outcome: object) -> None:
    """A5: pending includes waiting for a retry."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, outcome)  # type: ignore[arg-type]
    assert await _cancel(connection, job_id) == cancel.Cancellation(1, 0)
    assert await run_row(connection, job_id) is None
    assert await dead_letters.find(connection, dead_letters.Filter()) == []


async def test_a_running_job_is_asked_to_stop(connection: Conn, rival: Conn) -> None:
    """A5: the request is stored in the row, and a notification is sent with the commit."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    heard: list[str] = []
    await rival.add_listener("sexton_cancel", lambda *notified: heard.append(str(notified[2])))
    assert await _cancel(connection, job_id) == cancel.Cancellation(0, 1)
    await rival.execute("SELECT 1")
    assert heard == ["sexton_cancel"]
    assert await status(connection, job_id) == "running"
    row = await run_row(connection, job_id)
    assert row is not None
    assert (row["cancel_requested_at"], row["token"], row["worker_id"]) == (after(seconds=1), 1, worker_id)
    assert await _cancel(connection, job_id) == cancel.Cancellation(0, 1), "asking twice is harmless"
    await finish(connection, claimed.lease, Cancelled())
    assert await status(connection, job_id) == "cancelled"


async def test_a_second_cancel_does_not_move_the_first(connection: Conn) -> None:
    """A run that was handed over has a grace to stop, counted from the first request."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    await claim(connection, worker_id)
    for seconds in (1, 5):
        async with connection.transaction():
            done = await cancel_job(connection, TESTER, job_id, reason="by ada", now=after(seconds=seconds))
        assert done == cancel.Cancellation(0, 1)
    row = await run_row(connection, job_id)
    assert row is not None
    assert row["cancel_requested_at"] == after(seconds=1)


@pytest.mark.parametrize(("outcome", "ended"), [(Succeeded(), "completed"), (BROKEN, "failed"), (Cancelled(), "cancelled")])
async def test_a_finished_job_answers_with_a_conflict(connection: Conn, outcome: object, ended: str) -> None:
    """A5: and nothing changes."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    await finish(connection, claimed.lease, outcome)  # type: ignore[arg-type]
    with pytest.raises(NotAllowedIn) as refused:
        await _cancel(connection, job_id)
    assert (refused.value.action, refused.value.status) == ("cancel", ended)
    assert await status(connection, job_id) == ended


async def test_an_unknown_job_is_not_found(connection: Conn) -> None:
    """A5, F2."""
    with pytest.raises(NotFound):
        await _cancel(connection, uuid4())


async def test_a_cancel_that_meets_a_claim_asks_the_claimer(connection: Conn, rival: Conn) -> None:
    """A5, B1: the cancel waits for the claim to commit and then sees a running job."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    async with connection.transaction():
        await claim(connection, worker_id)
        answer = await blocked_task(connection, rival, _cancel(rival, job_id))
    assert await answer == cancel.Cancellation(0, 1)


async def test_a_claim_that_meets_a_cancel_skips_the_run(connection: Conn, rival: Conn) -> None:
    """A5, B1: the claim never gets the run."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)
        assert await claim(rival, worker_id) == []
    assert await claim(rival, worker_id) == []


async def test_a_cancel_that_meets_the_last_report_answers_with_a_conflict(connection: Conn, rival: Conn) -> None:
    """A5: the success was first."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    async with connection.transaction():
        await finish(connection, claimed.lease, Succeeded())
        answer = await blocked_task(connection, rival, _cancel(rival, job_id))
    with pytest.raises(NotAllowedIn, match="completed"):
        await answer


async def test_a_cancel_that_meets_a_retry_ends_it(connection: Conn, rival: Conn) -> None:
    """A5, rule "losses have their own budget": the run went back to waiting in the meantime; the cancel sees that and ends
    it."""
    worker_id = await enlist(connection)
    job_id = await submit(connection)
    (claimed,) = await claim(connection, worker_id)
    async with connection.transaction():
        await finish(connection, claimed.lease, FLAKY)
        answer = await blocked_task(connection, rival, _cancel(rival, job_id))
    assert await answer == cancel.Cancellation(1, 0)
    assert await status(connection, job_id) == "cancelled"


async def test_a_promotion_that_meets_a_cancel_changes_nothing(connection: Conn, rival: Conn) -> None:
    """A5."""
    job_id = await submit(connection, delay="1s")
    async with connection.transaction():
        await cancel_job(connection, TESTER, job_id, now=NOW)
        promoted = await runs.promote(rival, Scan(ALL, 10), now=after(hours=1))
    assert promoted.promoted_count == 0


async def test_a_buried_job_cannot_be_cancelled_and_a_replayed_one_can(connection: Conn) -> None:
    """A5, C7."""
    worker_id = await enlist(connection)
    job_id = await bury(connection, worker_id)
    with pytest.raises(NotAllowedIn, match="failed"):
        await _cancel(connection, job_id)
    (letter,) = await dead_letters.find(connection, dead_letters.Filter())
    await replay.replay(connection, TESTER, [letter.id], now=NOW)
    assert await _cancel(connection, job_id) == cancel.Cancellation(1, 0)
    assert await status(connection, job_id) == "cancelled"
