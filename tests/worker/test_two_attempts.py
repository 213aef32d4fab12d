"""C4: one worker has two attempts of one run: the first was swept while its handler still ran, and the worker claimed the run
again. Whatever happens to the old attempt, the new one counts."""

from __future__ import annotations

from uuid import UUID

import pytest

from sexton.domain.retry import Retry
from sexton.errors import DatabaseUnavailable
from sexton.telemetry.events import Ended, LeaseLost
from tests.rig import Between, HandWorker, Rig, settle


async def swept(rig: Rig, between: Between | None = None) -> tuple[HandWorker, UUID]:
    """A worker whose handler ignores requests to stop, and whose run was ended for its timeout; the run is ready again."""
    hand = await rig.worker(database=between, listens=False, worker_concurrency=2)
    job_id = await rig.submit(timeout=100, retry=Retry.immediate())
    await hand.take()
    await rig.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await rig.execute("UPDATE sexton.runs SET must_end_at = claimed_at")
    await rig.execute("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
    await rig.sweeper().run_once()
    assert await rig.state(job_id) == "ready"
    return hand, job_id


async def test_of_two_reports_in_one_batch_the_history_decides_which_counts(rig: Rig) -> None:
    hand, job_id = await swept(rig)
    await hand.take()
    first, second = hand.stage.handles
    first.returns("old")
    second.returns("new")
    await hand.report()
    (run_id,) = {handle.call.run_id for handle in hand.stage.handles}
    assert [(event.run_id, event.token) for event in rig.of(Ended)] == [(run_id, 2)]
    assert [(event.run_id, event.token) for event in rig.of(LeaseLost)] == [(run_id, 1)]
    assert '"new"' in [execution.result_json for execution in await rig.executions(job_id)]


async def test_the_end_of_the_old_attempt_does_not_remove_the_new_one(rig: Rig) -> None:
    hand, job_id = await swept(rig)
    await hand.take()
    await hand.beat()
    hand.stage.handles[0].returns("old")
    await hand.report()
    assert [execution.claimed.lease.token for execution in hand.held] == [2]
    for _ in range(2):
        await hand.beat()
    assert await rig.state(job_id) == "running"
    hand.stage.handles[1].returns("new")
    await hand.report()
    assert '"new"' in [execution.result_json for execution in await rig.executions(job_id)]


async def test_a_claim_whose_reply_was_lost_is_handed_back_though_the_old_attempt_still_runs(rig: Rig) -> None:
    between = Between(rig.database)
    hand, job_id = await swept(rig, between)
    between.lose_reply("claim")
    with pytest.raises(DatabaseUnavailable):
        await hand.take()
    await settle()
    assert await rig.state(job_id) == "running"
    for _ in range(3):
        await hand.beat()
    assert await rig.state(job_id) == "ready"
    assert hand.stage.handles[0].asked
