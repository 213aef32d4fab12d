"""Rule "a waiting caller leaves the group", in a worker: a locked row delays one run, and no other run of its batch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from sexton.errors import DatabaseUnavailable
from sexton.handlers.handle import HandedOver
from sexton.store.database import SHARED, Postgres
from sexton.store.views import locked_tables
from sexton.store.work import callbacks
from sexton.telemetry.events import Ended, Reconciled, ReportHeldUp
from sexton.telemetry.events import HandedOver as HandedOverEvent
from sexton.worker import held_up_reports, reporter
from sexton.worker.progress_writer import LOCKED_REST_S
from tests.rig import Between, HandWorker, Rig, settle

RUN = "SELECT FROM sexton.runs WHERE job_id = $1 FOR UPDATE"
KEY = "SELECT FROM sexton.idempotency_keys WHERE job_id = $1 FOR UPDATE"
TAKE_AWAY = """SELECT sexton.finish_runs(jsonb_build_array(jsonb_build_object(
  'run_id', id, 'worker_id', worker_id, 'token', token, 'next', 'again', 'status', 'lost', 'spends', 'loss', 'delay_s', 60)))
  FROM sexton.runs WHERE job_id = $1"""
OUTPUT = "SELECT FROM sexton.live_output WHERE run_id = $1 FOR UPDATE"


@pytest.fixture
async def shared(database_url: str) -> AsyncIterator[Postgres]:
    opened = await Postgres.open(database_url, timeouts=SHARED)
    yield opened
    await opened.close()


@asynccontextmanager
async def locked(url: str, statement: str, *arguments: object) -> AsyncIterator[asyncpg.Connection[Any]]:
    """By another session, in a transaction that is left open."""
    holder = await asyncpg.connect(url, server_settings={"application_name": "left open"})
    try:
        await holder.execute("BEGIN")
        await holder.fetch(statement, *arguments)
        yield holder
    finally:
        await holder.close()


async def started(rig: Rig, shared: Postgres, count: int) -> tuple[HandWorker, Between, list[UUID]]:
    between = Between(shared)
    hand = await rig.worker(database=between, worker_concurrency=count)
    for n in range(count):
        await rig.submit(key=str(n))
    await hand.take()
    between.statements.clear()
    return hand, between, [handle.call.job_id for handle in hand.stage.handles]


async def statuses(rig: Rig, jobs: list[UUID]) -> list[str]:
    return [await rig.status(job_id) for job_id in jobs]


@pytest.mark.parametrize("lock", [RUN, KEY])
async def test_the_others_of_a_batch_are_reported_in_the_same_pass(
    rig: Rig, shared: Postgres, database_url: str, lock: str
) -> None:
    """C19, C4."""
    hand, between, jobs = await started(rig, shared, 5)
    for handle in hand.stage.handles:
        handle.returns()
    await settle()
    async with locked(database_url, lock, jobs[2]):
        assert await hand.worker.reporter.run_once() == held_up_reports.RETRY_S_MIN
        assert between.statements == ["finish", "finish_each"]
        assert await statuses(rig, jobs) == ["completed", "completed", "running", "completed", "completed"]
        assert (len(rig.of(Ended)), [execution.claimed.lease.job_id for execution in hand.held]) == (4, [jobs[2]])
        assert hand.worker.reporter.pending_count == 1
    rig.move(held_up_reports.RETRY_S_MIN)
    assert await hand.worker.reporter.run_once() == reporter.REST_S
    assert (await rig.status(jobs[2]), hand.held, len(rig.of(Ended))) == ("completed", [], 5)


async def test_a_locked_run_is_tried_again_with_backoff_and_named(rig: Rig, shared: Postgres, database_url: str) -> None:
    """C19: new reports do not wait for it, and it does not wait for them."""
    hand, between, jobs = await started(rig, shared, 3)
    hand.stage.handles[0].returns()
    await settle()
    async with locked(database_url, RUN, jobs[0]) as holder:
        rests = [await hand.worker.reporter.run_once()]
        for _ in range(8):
            rig.move(rests[-1])
            rests.append(await hand.worker.reporter.run_once())
        assert rests == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
        (told,) = rig.of(ReportHeldUp)
        assert (told.run_id, told.task) == (jobs[0], "a")
        assert told.held_up_s == pytest.approx(1.5)
        assert told.holder.startswith(f"session {holder.get_server_pid()} of ")
        assert "left open" in told.holder
        between.statements.clear()
        hand.stage.handles[1].returns()
        await settle()
        await hand.worker.reporter.run_once()
        assert (between.statements, await rig.status(jobs[1])) == (["finish"], "completed")
        rig.move(held_up_reports.REMIND_S)
        await hand.worker.reporter.run_once()
        assert len(rig.of(ReportHeldUp)) == 2
    rig.move(5)
    await hand.report()
    assert await rig.statuses(jobs[0]) == ["succeeded"]


async def test_a_session_that_has_locked_the_history_is_named(
    rig: Rig, shared: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C19: and not a session of Sexton, which holds the run while it waits for that table."""
    monkeypatch.setattr(locked_tables, "HELD_S", 3600.0)  # of doctor and `why`: a report has waited already
    hand, _, (job_id,) = await started(rig, shared, 1)
    hand.stage.handles[0].returns()
    await settle()
    ours = await asyncpg.connect(database_url, server_settings={"application_name": "sexton"})
    try:
        async with locked(database_url, RUN, job_id) as holder, ours.transaction():
            assert await hand.worker.reporter.run_once() == held_up_reports.RETRY_S_MIN
            await holder.execute("ROLLBACK; BEGIN; LOCK TABLE sexton.executions IN SHARE MODE")
            await ours.fetch(RUN, job_id)
            rig.move(held_up_reports.WARN_S)
            await hand.worker.reporter.run_once()
            (told,) = rig.of(ReportHeldUp)
            pid = holder.get_server_pid()
        assert told.holder.startswith(f"session {pid} (left open, user ")
        assert told.holder.endswith(" has locked sexton.executions in SHARE mode: end that transaction")
        async with ours.transaction():
            await ours.fetch(RUN, job_id)
            rig.move(held_up_reports.REMIND_S)
            await hand.worker.reporter.run_once()
        assert "do not end it" in rig.of(ReportHeldUp)[-1].holder
    finally:
        await ours.close()
    rig.move(5)
    await hand.report()


async def test_one_transaction_over_many_runs_is_one_warning_that_names_some(
    rig: Rig, shared: Postgres, database_url: str
) -> None:
    """C19: they end one after the other, and the same session holds all of them."""
    count = 20
    hand, _, _ = await started(rig, shared, count)
    async with locked(database_url, "SELECT FROM sexton.runs WHERE state = 'running' FOR UPDATE"):
        for handle in hand.stage.handles[:10]:
            handle.returns()
        await settle()
        for second in range(60):
            if second % 2 and 10 + second // 2 < count:
                hand.stage.handles[10 + second // 2].returns()
                await settle()
            await hand.worker.reporter.run_once()
            rig.move(1)
    told = rig.of(ReportHeldUp)
    assert len(told) == 2 * held_up_reports.NAMED_LIMIT
    assert [event.more_count for event in told] == [0, 0, 0, 0, 5, 0, 0, 0, 0, 15]


async def test_a_locked_run_whose_lease_is_lost_is_dropped(rig: Rig, shared: Postgres, database_url: str) -> None:
    """C4: the lock may belong to the sweeper that takes the run."""
    hand, _, jobs = await started(rig, shared, 2)
    hand.stage.handles[0].returns()
    await settle()
    async with locked(database_url, RUN, jobs[0]) as holder:
        await hand.worker.reporter.run_once()
        await holder.fetch(TAKE_AWAY, jobs[0])
        await holder.execute("COMMIT")
    rig.move(1)
    await hand.worker.reporter.run_once()
    assert (hand.worker.reporter.pending_count, hand.worker.held_runs.refused_count) == (0, 1)


async def test_bad_data_and_a_lock_in_one_batch_are_handled_separately(rig: Rig, shared: Postgres, database_url: str) -> None:
    """Rules "bisect bad batches" and "a waiting caller leaves the group"."""
    hand, _, jobs = await started(rig, shared, 4)
    for handle, result in zip(hand.stage.handles, ["fine", "\x00", "locked", "fine"], strict=True):
        handle.returns(result)
    await settle()
    async with locked(database_url, RUN, jobs[2]):
        await hand.worker.reporter.run_once()
        assert await statuses(rig, jobs) == ["completed", "failed", "running", "completed"]
    rig.move(1)
    await hand.report()
    assert await rig.status(jobs[2]) == "completed"


async def test_a_run_that_leaves_its_worker_waits_alone_too(rig: Rig, shared: Postgres, database_url: str) -> None:
    """C6: the run of a target that answered 202 waits; the others leave."""
    hand, _, jobs = await started(rig, shared, 3)
    for handle in hand.stage.handles:
        handle.raises(HandedOver())
    await settle()
    async with locked(database_url, RUN, jobs[1]):
        assert await hand.worker.reporter.run_once() == reporter.LOCKED_S
        assert [event.job_id for event in rig.of(HandedOverEvent)] == [jobs[0], jobs[2]]
    rig.move(reporter.LOCKED_S)
    await hand.report()
    run = await rig.run(jobs[1])
    assert run is not None
    assert (run["worker_id"], hand.held) == (callbacks.HOLDER, [])


async def test_locked_progress_does_not_delay_that_of_others(rig: Rig, shared: Postgres, database_url: str) -> None:
    """C13."""
    hand, between, jobs = await started(rig, shared, 3)
    for handle in hand.stage.handles:
        handle.context.log("one")
    await hand.worker.progress_writer.run_once()
    async with locked(database_url, OUTPUT, jobs[1]):
        for handle in hand.stage.handles:
            handle.context.log("two")
        await hand.worker.progress_writer.run_once()
        outputs = [await rig.live_output(job_id) for job_id in jobs]
        assert [one and one.output for one in outputs] == ["one\ntwo", "one", "one\ntwo"]
        between.statements.clear()
        hand.stage.handles[0].context.log("three")
        await hand.worker.progress_writer.run_once()
        assert between.statements == ["tell"]
    rig.move(LOCKED_REST_S)
    await hand.worker.progress_writer.run_once()
    last = await rig.live_output(jobs[1])
    assert last is not None
    assert last.output == "one\ntwo"


async def test_a_locked_unknown_lease_does_not_stop_the_heartbeat(rig: Rig, shared: Postgres, database_url: str) -> None:
    """C4, rule "reconcile lost replies": the others are handed back at once, and this one after the lock."""
    between = Between(shared)
    hand = await rig.worker(database=between)
    jobs = await rig.submit_many(3)
    between.lose_reply("claim")
    with pytest.raises(DatabaseUnavailable):
        await hand.take()
    async with locked(database_url, RUN, jobs[0]):
        await hand.beat()
        assert [await rig.state(job_id) for job_id in jobs] == ["running", "ready", "ready"]
    await hand.beat()
    assert await rig.state(jobs[0]) == "ready"
    assert [event.count for event in rig.of(Reconciled)] == [2, 1]
