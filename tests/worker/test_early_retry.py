"""Issue 8: a host that was down is back. Whom it had sent away is due at once, unless something else became of it since."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sexton.errors import DatabaseUnavailable, Snooze
from sexton.worker.early_retry import AGAIN_S, REST_S, EarlyRetry
from tests.rig import Between, HandWorker, Rig


async def sent_away(rig: Rig, hand: HandWorker) -> tuple[UUID, tuple[UUID, int]]:
    """The job, and what its run is hastened by."""
    job_id = await rig.submit()
    await hand.take()
    call = hand.stage.handles[-1].call
    hand.stage.handles[-1].raises(Snooze(300, "down"))
    await hand.report()
    return job_id, (call.run_id, call.token)


async def now_due(rig: Rig, job_id: UUID) -> dict[str, Any]:
    run = await rig.run(job_id)
    assert run is not None
    return {"state": run["state"], "due": run["due_at"] <= rig.clock.database_now()}


async def test_what_was_sent_away_is_due_now(rig: Rig) -> None:
    job_id, fence = await sent_away(rig, await rig.worker())
    early_retry = EarlyRetry(rig.database, clock=rig.clock)
    early_retry([fence])
    assert await early_retry.run_once() == REST_S
    assert await now_due(rig, job_id) == {"state": "waiting", "due": True}


async def test_who_was_claimed_since_waits_for_what_it_was_told_then(rig: Rig) -> None:
    """A retry's pause is not cut short by a host that it was sent away from before."""
    hand = await rig.worker()
    job_id, fence = await sent_away(rig, hand)
    rig.move(301)
    await rig.promote()
    await hand.beat()
    await hand.take()
    hand.stage.handles[-1].raises(ValueError("no"))
    await hand.report()
    early_retry = EarlyRetry(rig.database, clock=rig.clock)
    early_retry([fence])
    await early_retry.run_once()
    assert await now_due(rig, job_id) == {"state": "waiting", "due": False}


async def test_it_looks_once_more_for_one_that_was_only_just_sent_away(rig: Rig) -> None:
    """Its host answered somebody before the database had heard that it was sent away."""
    hand = await rig.worker()
    job_id = await rig.submit()
    await hand.take()
    handle = hand.stage.handles[-1]
    early_retry = EarlyRetry(rig.database, clock=rig.clock)
    early_retry([(handle.call.run_id, handle.call.token)])
    assert await early_retry.run_once() == pytest.approx(AGAIN_S)
    handle.raises(Snooze(300, "down"))
    await hand.report()
    rig.move(AGAIN_S)
    assert await early_retry.run_once() == REST_S
    assert await now_due(rig, job_id) == {"state": "waiting", "due": True}
    assert await early_retry.run_once() == REST_S


async def test_an_outage_loses_nobody(rig: Rig) -> None:
    job_id, fence = await sent_away(rig, await rig.worker())
    between = Between(rig.database)
    early_retry = EarlyRetry(between, clock=rig.clock)
    early_retry([fence])
    between.refuse("hasten")
    with pytest.raises(DatabaseUnavailable):
        await early_retry.run_once()
    await early_retry.run_once()
    assert await now_due(rig, job_id) == {"state": "waiting", "due": True}
