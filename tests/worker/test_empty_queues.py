"""An idle worker's beat looks for work: one statement for both, and nothing is found later for it."""

from __future__ import annotations

from typing import Any

from sexton.worker.empty_queues import HINT_S
from sexton.worker.heartbeat import OVERDUE_S
from sexton.worker.intake import OVERDUE_LOOK_S
from tests.rig import Between, HandWorker, Rig


async def idle(rig: Rig, **settings: Any) -> tuple[HandWorker, Between]:
    """A worker that looks by its beats, a while after anything happened."""
    between = Between(rig.database)
    hand = await rig.worker(database=between, looks_by_beat=True, **settings)
    rig.move(1)
    await hand.beat()
    between.statements.clear()
    return hand, between


async def test_an_idle_worker_sends_nothing_but_its_beats(rig: Rig) -> None:
    """B10: for half a minute, so that it would have looked for what is overdue as well."""
    hand, between = await idle(rig)
    for _ in range(15):
        assert await hand.beat() == 2.0
        rig.move(1.7)
        await hand.take()
    assert between.statements == ["beat"] * 15


async def test_what_became_ready_without_a_hint_is_taken_with_the_next_beat(rig: Rig) -> None:
    """Rule "overdue work is anyone's": the notification was lost."""
    hand, _ = await idle(rig)
    await rig.submit()
    await hand.take()
    assert hand.stage.handles == [], "nobody has told it"
    await hand.beat()
    assert hand.intake.wake.is_set
    await hand.take()
    assert len(hand.stage.handles) == 1


async def test_a_hint_is_followed_at_once_and_once_more(rig: Rig) -> None:
    """B8, ADR 010: the second look finds what was submitted while notifications were held back, whatever a beat saw."""
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


async def test_a_beat_that_was_sent_before_the_hint_does_not_silence_it(rig: Rig) -> None:
    """B8: it looked before the job was there, and its answer came after the hint."""
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


async def test_where_something_was_there_may_be_more(rig: Rig) -> None:
    """B8: found by a beat and not by a hint; the next beat sees nothing, then more comes with its notification held back."""
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


async def test_while_beats_fail_it_looks_for_itself(rig: Rig) -> None:
    """Rule "overdue work is anyone's": what was seen counts for no longer than until the next beat is overdue."""
    hand, between = await idle(rig)
    await rig.submit()
    rig.move(2.4)
    await hand.take()
    assert between.statements == []
    rig.move(0.2)
    await hand.take()
    assert len(hand.stage.handles) == 1


async def test_what_no_scheduler_promoted_is_found_by_a_beat(rig: Rig) -> None:
    """B2, rule "overdue work is anyone's": with no scheduler at all; and taken at once."""
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
