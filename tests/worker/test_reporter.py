"""The reporter: outcomes in batches, each under its lease; no report is lost with a reply, and no event is emitted twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain.retry import Retry
from sexton.errors import DatabaseUnavailable, PermanentError, Snooze
from sexton.telemetry.events import Ended, LeaseLost
from sexton.worker.reporter import BATCH, REST_S
from tests.rig import Between, HandWorker, Rig, settle

if TYPE_CHECKING:
    Conn = asyncpg.Connection[Any]


async def started(rig: Rig, count: int = 1, **options: Any) -> tuple[HandWorker, Between, list[UUID]]:
    """A worker with that many running handlers. The test can act between its statements."""
    between = Between(rig.database)
    hand = await rig.worker(database=between, worker_concurrency=count)
    await rig.submit_many(count, **options)
    await hand.take()
    between.statements.clear()
    return hand, between, [handle.call.job_id for handle in hand.stage.handles]


async def lose_all(rig: Rig) -> None:
    """Another worker gets the runs."""
    await rig.execute("DELETE FROM sexton.workers")
    await rig.sweeper().run_once()


class TestBatches:
    async def test_all_waiting_reports_are_sent_in_one_statement(self, rig: Rig) -> None:
        """B11."""
        hand, between, jobs = await started(rig, 30)
        for handle in hand.stage.handles:
            handle.returns()
        await settle()
        assert await hand.worker.reporter.run_once() == REST_S
        assert between.statements == ["finish"]
        assert len(rig.of(Ended)) == 30
        for job_id in jobs:
            assert await rig.status(job_id) == "completed"
        assert hand.held == []

    async def test_a_batch_has_a_limit_and_the_rest_follows_at_once(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        assert BATCH <= 1000
        monkeypatch.setattr("sexton.worker.reporter.BATCH", 10)
        hand, between, _ = await started(rig, 25)
        for handle in hand.stage.handles:
            handle.returns()
        await settle()
        assert [await hand.worker.reporter.run_once() for _ in range(3)] == [0.0, 0.0, REST_S]
        assert between.statements == ["finish"] * 3

    async def test_an_idle_reporter_sends_no_statement(self, rig: Rig) -> None:
        """B10."""
        hand, between, _ = await started(rig)
        assert await hand.worker.reporter.run_once() == REST_S
        assert between.statements == []

    async def test_the_end_of_a_run_wakes_it(self, rig: Rig) -> None:
        """B8."""
        hand, _, _ = await started(rig)
        assert not hand.worker.reporter.wake.is_set
        hand.stage.handles[0].returns()
        await settle()
        assert hand.worker.reporter.wake.is_set

    async def test_every_kind_of_end_is_part_of_the_same_batch(self, rig: Rig) -> None:
        """Rule "one path in, one path out"."""
        hand, between, jobs = await started(rig, 5, retry=Retry.immediate(), timeout=0)
        first, second, third, fourth, _ = hand.stage.handles
        first.returns()
        second.raises(ValueError("no luck"))
        third.raises(PermanentError("hopeless"))
        fourth.raises(Snooze(60))
        hand.held[4].cancel()
        await hand.report()
        assert between.statements == ["finish"]
        assert [(await rig.statuses(job))[0] for job in jobs] == ["succeeded", "failed", "failed", "snoozed", "cancelled"]
        assert [await rig.state(job) for job in jobs] == [None, "ready", None, "waiting", None]


class TestLostReplies:
    async def test_a_report_whose_reply_was_lost_is_found_recorded(self, rig: Rig) -> None:
        """Rule "reconcile lost replies": zero rows plus a history row with this token is success."""
        hand, between, jobs = await started(rig, 3)
        for handle in hand.stage.handles:
            handle.returns("done")
        await settle()
        between.lose_reply("finish")
        with pytest.raises(DatabaseUnavailable):
            await hand.worker.reporter.run_once()
        assert (rig.of(Ended), len(hand.held)) == ([], 3)
        await hand.report()
        assert sorted(event.job_id for event in rig.of(Ended)) == sorted(jobs)
        assert rig.of(LeaseLost) == []
        for job_id in jobs:
            assert await rig.statuses(job_id) == ["succeeded"]
        assert (hand.held, hand.worker.held_runs.refused_count) == ([], 0)

    @pytest.mark.parametrize("end", ["retry", "snooze", "release"])
    async def test_a_hand_back_whose_reply_was_lost_is_found_recorded(self, rig: Rig, end: str) -> None:
        """Rule "reconcile lost replies": even if another worker executes the run by now."""
        hand, between, (job_id,) = await started(rig, retry=Retry.immediate())
        if end == "release":
            hand.held[0].release("draining")
        else:
            hand.stage.handles[0].raises(ValueError("no luck") if end == "retry" else Snooze(0))
        await settle()
        between.lose_reply("finish")
        with pytest.raises(DatabaseUnavailable):
            await hand.worker.reporter.run_once()
        other = await rig.worker()
        await other.take()
        await hand.report()
        assert len(rig.of(Ended)) == 1
        assert rig.of(LeaseLost) == []
        assert len(await rig.executions(job_id)) == 1
        assert await rig.state(job_id) == "running"

    async def test_a_report_that_never_arrived_is_sent_again(self, rig: Rig) -> None:
        """D4."""
        hand, between, (job_id,) = await started(rig)
        hand.stage.handles[0].returns("done")
        await settle()
        for _ in range(3):
            between.refuse("finish")
            with pytest.raises(DatabaseUnavailable):
                await hand.worker.reporter.run_once()
        await hand.report()
        assert (await rig.last(job_id)).result_json == '"done"'

    async def test_runs_that_end_while_a_batch_is_sent_wait_for_the_next(self, rig: Rig) -> None:
        hand, between, jobs = await started(rig, 2)
        first, second = hand.stage.handles
        first.returns()
        await settle()

        async def ends() -> None:
            second.returns()
            await settle()

        between.after("finish", ends)
        assert await hand.worker.reporter.run_once() == 0.0
        assert [await rig.status(job_id) for job_id in jobs] == ["completed", "running"]
        await hand.report()
        assert await rig.status(jobs[1]) == "completed"

    @pytest.mark.parametrize("broken", ["recorded_outcome", "finish"])
    async def test_a_failure_in_the_middle_emits_no_event_twice(self, rig: Rig, broken: str) -> None:
        """One event per transition: events from before the failure are not emitted again with the second try."""
        hand, between, jobs = await started(rig, 4)
        if broken == "recorded_outcome":
            await take_over(rig, jobs[2])
            for handle in hand.stage.handles:
                handle.returns()
            await settle()
            between.refuse("recorded_outcome")
        else:
            for handle in hand.stage.handles[:3]:
                handle.returns()
            hand.stage.handles[3].returns("a\x00b")
            await settle()

            async def second_half() -> None:
                async def third() -> None:
                    between.refuse("finish")

                between.after("finish", third)

            between.before("finish", second_half)
        with pytest.raises(DatabaseUnavailable):
            await hand.worker.reporter.run_once()
        await hand.report()
        told = [event.job_id for event in rig.events if isinstance(event, Ended | LeaseLost)]
        assert sorted(told) == sorted(jobs)
        assert hand.held == []
        assert hand.worker.held_runs.refused_count == (1 if broken == "recorded_outcome" else 0)


async def take_over(rig: Rig, job_id: UUID) -> None:
    """Swept because it exceeded its time, though its worker is alive."""
    await rig.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    await rig.execute("UPDATE sexton.runs SET must_end_at = claimed_at WHERE job_id = $1", job_id)
    await rig.execute("ALTER TABLE sexton.runs ENABLE TRIGGER test_only_watch")
    await rig.sweeper().run_once()


class TestTheFence:
    async def test_a_result_whose_lease_is_gone_is_dropped_counted_and_logged(self, rig: Rig) -> None:
        """C4."""
        hand, _, (job_id,) = await started(rig)
        (lease,) = [execution.claimed.lease for execution in hand.held]
        await lose_all(rig)
        hand.stage.handles[0].returns("late")
        await hand.report()
        assert rig.of(LeaseLost) == [LeaseLost(hand.worker.worker_id, job_id, lease.run_id, lease.token)]
        assert rig.of(Ended) == []
        assert hand.worker.held_runs.refused_count == 1
        assert await rig.statuses(job_id) == ["lost"]
        assert (await rig.last(job_id)).result_json is None

    @pytest.mark.parametrize("by", ["another", "this very one"])
    async def test_it_cannot_close_the_next_attempt(self, rig: Rig, by: str) -> None:
        """C4: the same run, claimed again by another worker, or by this one."""
        hand, _, (job_id,) = await started(rig, retry=Retry.immediate())
        await take_over(rig, job_id)
        heir = await rig.worker()
        await (heir if by == "another" else hand).take()
        hand.intake.slots.limit = 2
        await hand.take()
        assert await rig.state(job_id) == "running"
        hand.stage.handles[0].returns("late")
        await hand.report()
        assert await rig.state(job_id) == "running"
        assert await rig.statuses(job_id) == ["timed_out"]
        assert len(rig.of(LeaseLost)) == 1

    async def test_the_other_reports_of_its_batch_are_accepted(self, rig: Rig) -> None:
        hand, _, jobs = await started(rig, 3)
        await take_over(rig, jobs[1])
        for handle in hand.stage.handles:
            handle.returns()
        await hand.report()
        assert {event.job_id for event in rig.of(Ended)} == {jobs[0], jobs[2]}
        assert [event.job_id for event in rig.of(LeaseLost)] == [jobs[1]]

    async def test_the_fleet_shows_the_number_of_late_results(self, rig: Rig) -> None:
        """E1: lease expiries."""
        hand, _, (job_id,) = await started(rig)
        await take_over(rig, job_id)
        hand.stage.handles[0].returns("late")
        await hand.report()
        await hand.beat()
        assert [row[0] for row in await rig.execute("SELECT refused_count FROM sexton.workers")] == [1]


class TestWhatTheDatabaseRefuses:
    @pytest.mark.parametrize("offender", range(7))
    async def test_the_rejected_report_is_found_and_the_others_are_accepted(self, rig: Rig, offender: int) -> None:
        """Rule "bisect bad batches": it becomes a permanent failure with a clear error."""
        hand, _, jobs = await started(rig, 7)
        for index, handle in enumerate(hand.stage.handles):
            handle.returns({"text": "a\x00b"} if index == offender else "fine")
        await hand.report()
        for index, job_id in enumerate(jobs):
            execution = await rig.last(job_id)
            assert execution.status == ("failed" if index == offender else "succeeded")
        (letter,) = await rig.letters()
        assert (letter.job_id, letter.permanent) == (jobs[offender], True)
        assert letter.error is not None
        assert "PostgreSQL rejected the handler's result" in letter.error.message
        assert len(rig.of(Ended)) == 7
        assert hand.held == []

    async def test_all_rejected_reports_of_a_batch_are_found(self, rig: Rig) -> None:
        """Rule "bisect bad batches"."""
        hand, _, jobs = await started(rig, 6)
        for index, handle in enumerate(hand.stage.handles):
            handle.returns("a\x00b" if index % 2 else None)
        await hand.report()
        assert [await rig.status(job_id) for job_id in jobs] == ["completed", "failed"] * 3

    async def test_a_rejected_report_whose_lease_is_gone_is_dropped(self, rig: Rig) -> None:
        """C4, rule "bisect bad batches"."""
        hand, _, (job_id,) = await started(rig)
        await take_over(rig, job_id)
        hand.stage.handles[0].returns("a\x00b")
        await hand.report()
        assert len(rig.of(LeaseLost)) == 1
        assert await rig.statuses(job_id) == ["timed_out"]


class TestCancelInBetween:
    async def test_a_retry_that_a_cancel_overtakes_is_reported_again_and_ends_as_cancelled(
        self, rig: Rig, connection: Conn, database_url: str
    ) -> None:
        """A5, rule "losses have their own budget": the cancel commits while the report waits for its lock."""
        hand, between, (job_id,) = await started(rig, retry=Retry.immediate())
        hand.stage.handles[0].raises(ValueError("no luck"))
        await settle()
        rival = await asyncpg.connect(database_url)
        transaction = rival.transaction()
        await transaction.start()
        await rival.execute("UPDATE sexton.runs SET cancel_requested_at = now()")
        reporting = asyncio.ensure_future(hand.worker.reporter.run_once())
        await until_blocked_by(connection, rival, reporting)
        await transaction.commit()
        await rival.close()
        assert await reporting == 0.0
        assert hand.worker.reporter.pending_count == 1
        await hand.report()
        assert between.statements.count("finish") == 2
        assert await rig.status(job_id) == "cancelled"
        assert await rig.statuses(job_id) == ["failed"]
        assert [event.job_id for event in rig.of(Ended)] == [job_id]


async def until_blocked_by(observer: Conn, rival: Conn, work: asyncio.Future[Any]) -> None:
    """Returns once another session waits for the rival."""
    pid = rival.get_server_pid()
    while not work.done():
        if await observer.fetchval("SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", pid):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"it did not wait: {work!r}")
