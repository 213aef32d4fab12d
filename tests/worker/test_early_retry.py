"""A host that was down is up again. Runs that were postponed because of it are due at once, unless they have changed since."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sexton.errors import DatabaseUnavailable, Snooze
from sexton.worker.early_retry import AGAIN_S, REST_S, EarlyRetry
from tests.rig import Between, HandWorker, Rig


async def sent_away(rig: Rig, hand: HandWorker) -> tuple[UUID, tuple[UUID, int]]:
    """The job, and the call that makes its run due early."""
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


async def test_a_postponed_run_is_due_at_once(rig: Rig) -> None:
    job_id, fence = await sent_away(rig, await rig.worker())
    early_retry = EarlyRetry(rig.database, clock=rig.clock)
    early_retry([fence])
    assert await early_retry.run_once() == REST_S
    assert await now_due(rig, job_id) == {"state": "waiting", "due": True}


async def test_a_run_that_was_claimed_since_keeps_its_new_retry_time(rig: Rig) -> None:
    """The delay of a retry is not shortened by a host that it was postponed for before."""
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


async def test_it_looks_again_for_a_run_that_was_postponed_a_moment_ago(rig: Rig) -> None:
    """Its host answered another call before the database had the postponement."""
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


async def test_an_outage_of_the_database_loses_no_run(rig: Rig) -> None:
    job_id, fence = await sent_away(rig, await rig.worker())
    between = Between(rig.database)
    early_retry = EarlyRetry(between, clock=rig.clock)
    early_retry([fence])
    between.refuse("make_due")
    with pytest.raises(DatabaseUnavailable):
        await early_retry.run_once()
    await early_retry.run_once()
    assert await now_due(rig, job_id) == {"state": "waiting", "due": True}
