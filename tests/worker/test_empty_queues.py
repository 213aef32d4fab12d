"""The heartbeat of an idle worker also looks for runs: one statement for both, and runs are found no later."""

from __future__ import annotations

from typing import Any

from sexton.worker.empty_queues import HINT_S
from sexton.worker.heartbeat import OVERDUE_S
from sexton.worker.intake import OVERDUE_LOOK_S
from tests.rig import Between, HandWorker, Rig


async def idle(rig: Rig, **settings: Any) -> tuple[HandWorker, Between]:
    """A worker that looks with its heartbeats, some time after the last run."""
    between = Between(rig.database)
    hand = await rig.worker(database=between, heartbeat_polls=True, **settings)
    rig.move(1)
    await hand.beat()
    between.statements.clear()
    return hand, between


async def test_an_idle_worker_sends_only_its_heartbeats(rig: Rig) -> None:
    """B10: for half a minute, long enough to look for overdue runs as well."""
    hand, between = await idle(rig)
    for _ in range(15):
        assert await hand.beat() == 2.0
        rig.move(1.7)
        await hand.take()
    assert between.statements == ["beat"] * 15


async def test_a_run_that_became_ready_without_a_notification_is_claimed_with_the_next_heartbeat(rig: Rig) -> None:
    """Rule "any node does overdue work": the notification was lost."""
    hand, _ = await idle(rig)
    await rig.submit()
    await hand.take()
    assert hand.stage.handles == [], "it was not told"
    await hand.beat()
    assert hand.intake.wake.is_set
    await hand.take()
    assert len(hand.stage.handles) == 1


async def test_a_notification_is_followed_by_a_look_at_once_and_one_more(rig: Rig) -> None:
    """B8, ADR 010: the second look finds runs submitted while notifications were held back, whatever a heartbeat saw."""
    hand, between = await idle(rig)
    hand.worker.hear("default")
    await hand.take()
    rig.move(0.005)
    await hand.beat()
    await rig.submit()
    rig.move(0.010)
    await hand.take()
    assert len(hand.stage.handles) == 1
    assert between.statements == ["claim", "beat", "claim"]


async def test_a_heartbeat_that_was_sent_before_the_notification_does_not_cancel_it(rig: Rig) -> None:
    """B8: the heartbeat looked before the job existed, and its answer came after the notification."""
    hand, between = await idle(rig)

    async def meanwhile() -> None:
        rig.move(0.3)
        await rig.submit()
        hand.worker.hear("default")
        rig.move(HINT_S + 0.1)

    between.after("beat", meanwhile)
    await hand.beat()
    await hand.take()
    assert len(hand.stage.handles) == 1


async def test_after_a_run_was_found_it_looks_for_more(rig: Rig) -> None:
    """B8: found by a heartbeat and not by a notification; the next heartbeat sees nothing, then more runs come with their
    notification held back."""
    hand, _ = await idle(rig)
    await rig.submit()
    await hand.beat()
    await hand.take()
    rig.move(0.005)
    await hand.beat()
    await rig.submit()
    rig.move(0.010)
    await hand.take()
    assert len(hand.stage.handles) == 2


async def test_while_heartbeats_fail_it_looks_by_itself(rig: Rig) -> None:
    """Rule "any node does overdue work": the result of a heartbeat counts only until the next one is overdue."""
    hand, between = await idle(rig)
    await rig.submit()
    rig.move(2.4)
    await hand.take()
    assert between.statements == []
    rig.move(0.2)
    await hand.take()
    assert len(hand.stage.handles) == 1


async def test_runs_that_no_scheduler_promoted_are_found_by_a_heartbeat(rig: Rig) -> None:
    """B2, rule "any node does overdue work": without any scheduler; they are claimed at once."""
    hand, _ = await idle(rig)
    job_id = await rig.submit(delay=1)
    late_s = 0.0
    while await rig.state(job_id) != "running":
        rig.move(2.0)
        late_s += 2.0
        assert late_s <= 1 + OVERDUE_S + OVERDUE_LOOK_S + 2.0
        await hand.beat()
        await hand.take()
        await hand.take()


async def test_it_looks_into_its_own_queues(rig: Rig) -> None:
    """B11."""
    hand, between = await idle(rig, worker_queues=("mail", "print"))
    await rig.submit(queue="other")
    await hand.beat()
    assert not hand.intake.wake.is_set
    await rig.submit(queue="print")
    await hand.beat()
    await hand.take()
    assert len(hand.stage.handles) == 1
    assert between.statements == ["beat", "beat", "claim"]
