"""C13: the output of a handler is visible while it runs, and kept when it has ended."""

from __future__ import annotations

import pytest

from sexton.errors import DatabaseUnavailable
from sexton.store.work.jobs import LiveOutput
from tests.rig import Between, Rig, settle


async def test_progress_and_output_are_seen_live_and_kept(rig: Rig) -> None:
    hand = await rig.worker()
    job_id = await rig.submit()
    await hand.take()
    context = hand.stage.handles[0].context
    assert await rig.live_output(job_id) is None
    context.log("one")
    context.progress(0.25, "a quarter", rows=7)
    assert await hand.worker.progress_writer.run_once() == 1.0
    assert await rig.live_output(job_id) == LiveOutput('{"rows": 7, "message": "a quarter", "fraction": 0.25}', "one")
    context.log("two")
    context.progress(1.0)
    await hand.worker.progress_writer.run_once()
    assert await rig.live_output(job_id) == LiveOutput('{"fraction": 1.0}', "one\ntwo")
    context.log("three")
    hand.stage.handles[0].returns()
    await hand.report()
    execution = await rig.last(job_id)
    assert (execution.output, execution.progress_json) == ("one\ntwo\nthree", '{"fraction": 1.0}')
    assert await rig.live_output(job_id) is None


async def test_only_new_output_is_written(rig: Rig) -> None:
    """B10: a silent handler costs nothing."""
    between = Between(rig.database)
    hand = await rig.worker(database=between)
    await rig.submit_many(3)
    await hand.take()
    between.statements.clear()
    await hand.worker.progress_writer.run_once()
    assert between.statements == []
    for handle in hand.stage.handles:
        handle.context.log("hello")
    for _ in range(3):
        await hand.worker.progress_writer.run_once()
    assert between.statements == ["tell"]


@pytest.mark.parametrize("lost_by", ["refuse", "lose_reply"])
async def test_output_is_not_lost_with_the_connection(rig: Rig, lost_by: str) -> None:
    """D4: the last output before a long silence is shown after an outage."""
    between = Between(rig.database)
    hand = await rig.worker(database=between)
    job_id = await rig.submit()
    await hand.take()
    hand.stage.handles[0].context.progress(0.5)
    getattr(between, lost_by)("tell")
    with pytest.raises(DatabaseUnavailable):
        await hand.worker.progress_writer.run_once()
    await hand.worker.progress_writer.run_once()
    assert await rig.live_output(job_id) == LiveOutput('{"fraction": 0.5}', None)


async def test_nothing_is_written_once_the_lease_is_lost(rig: Rig) -> None:
    """C4: the output belongs to the worker that holds the run now."""
    hand = await rig.worker()
    job_id = await rig.submit()
    await hand.take()
    await rig.execute("DELETE FROM sexton.workers")
    await rig.sweeper().run_once()
    heir = await rig.worker()
    await heir.take()
    heir.stage.handles[0].context.log("the heir")
    await heir.worker.progress_writer.run_once()
    hand.stage.handles[0].context.log("the dead")
    await hand.worker.progress_writer.run_once()
    assert await rig.live_output(job_id) == LiveOutput(None, "the heir")


async def test_nothing_is_written_after_the_end(rig: Rig) -> None:
    """The last output is part of the report, and is not written after it."""
    between = Between(rig.database)
    hand = await rig.worker(database=between)
    job_id = await rig.submit()
    await hand.take()
    hand.stage.handles[0].context.log("last words")
    hand.stage.handles[0].returns()
    await settle()
    between.statements.clear()
    await hand.worker.progress_writer.run_once()
    assert between.statements == []
    await hand.report()
    await hand.worker.progress_writer.run_once()
    assert await rig.execute("SELECT FROM sexton.live_output") == []
    assert (await rig.last(job_id)).output == "last words"


async def test_the_output_of_a_failed_attempt_is_not_shown_for_the_next(rig: Rig) -> None:
    hand = await rig.worker()
    job_id = await rig.submit()
    await hand.take()
    hand.stage.handles[0].context.log("first try")
    await hand.worker.progress_writer.run_once()
    hand.held[0].release("draining")
    await hand.report()
    rig.move(1)
    await hand.take()
    assert await rig.live_output(job_id) is None
    hand.stage.handles[1].context.log("second try")
    await hand.worker.progress_writer.run_once()
    assert await rig.live_output(job_id) == LiveOutput(None, "second try")
    hand.stage.handles[1].returns()
    await hand.report()
    assert [execution.output for execution in await rig.executions(job_id)] == ["first try", "second try"]
