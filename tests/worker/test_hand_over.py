"""A run whose handler called a target that continues alone: it leaves its worker, and a callback, the sweeper or a cancel ends
it. Also remote workers, whose silence is measured by a lease of their own (C2, C6, F3)."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from sexton.domain.outcome import ErrorInfo, Failed, Succeeded
from sexton.domain.retry import Retry
from sexton.domain.signed_lease import SignedLease
from sexton.errors import DatabaseUnavailable, SextonError
from sexton.handlers.handle import HandedOver
from sexton.operations.remote.reports import Item, LeaseReports
from sexton.scheduler.sweeper import Sweeper
from sexton.store.fleet import remote_workers
from sexton.store.work import callbacks
from sexton.telemetry.events import Ended, LeaseLost, WorkerLost
from sexton.telemetry.events import HandedOver as HandedOverEvent
from tests.callers import TESTER
from tests.rig import LEASE_S, Between, HandWorker, Rig

TIMEOUT_S = 600.0


async def started(rig: Rig, hand: HandWorker, **options: Any) -> SignedLease:
    """A run that the worker has begun."""
    job_id = await rig.submit(**{"timeout": TIMEOUT_S, **options})
    await hand.take()
    run = await rig.run(job_id)
    assert run is not None
    return SignedLease(run["id"], job_id, run["token"])


async def handed_over(rig: Rig, hand: HandWorker, **options: Any) -> SignedLease:
    lease = await started(rig, hand, **options)
    hand.stage.handles[-1].raises(HandedOver())
    await hand.report()
    assert (await held_by(rig, lease)) == callbacks.HOLDER
    return lease


async def held_by(rig: Rig, lease: SignedLease) -> UUID | None:
    run = await rig.run(lease.job_id)
    return None if run is None else run["worker_id"]


async def hear(rig: Rig, lease: SignedLease, **given: Any) -> callbacks.Heard | None:
    async with rig.database.connection() as connection:
        return await callbacks.hear(connection, lease, now=rig.clock.database_now(), **given)


async def end(rig: Rig, lease: SignedLease, outcome: Any = None) -> str:
    """The answer to the callback: the recorded status, or the code of the problem."""
    reports = LeaseReports(rig.database, clock=rig.clock, emit=rig.heard, rng=Random(1))
    try:
        return (await reports.settle(TESTER, Item(lease, outcome or Succeeded()))).status
    except SextonError as problem:
        return problem.code


async def watch(rig: Rig, sweeper: Sweeper, span_s: float, step_s: float = 1.0) -> None:
    for _ in range(round(span_s / step_s)):
        rig.move(step_s)
        await sweeper.run_once()


class TestTheHandOver:
    async def test_the_slot_is_free_and_the_run_continues_under_the_same_token(self, rig: Rig) -> None:
        """F3: the run has not ended, nothing is reported, and the worker no longer holds it."""
        hand = await rig.worker()
        lease = await handed_over(rig, hand)
        assert (hand.held, hand.intake.slots.used) == ([], 0)
        assert await rig.status(lease.job_id) == "running"
        assert await rig.statuses(lease.job_id) == []
        assert [event.run_id for event in rig.of(HandedOverEvent)] == [lease.run_id]
        run = await rig.run(lease.job_id)
        assert run is not None
        assert run["token"] == lease.token

    async def test_the_callback_ends_the_run(self, rig: Rig) -> None:
        """F3: once."""
        lease = await handed_over(rig, await rig.worker())
        rig.move(300)
        assert await end(rig, lease) == "succeeded"
        assert await rig.status(lease.job_id) == "completed"
        assert [event.took_s for event in rig.of(Ended)] == [300.0]
        assert await end(rig, lease, Failed(ErrorInfo("E", "no"))) == "lease_lost"
        assert await end(rig, lease) == "succeeded"  # a repeated callback: its first answer may have been lost
        assert await rig.statuses(lease.job_id) == ["succeeded"]

    async def test_a_callback_that_fails_is_retried_by_the_jobs_policy(self, rig: Rig) -> None:
        """C4, F3: the next attempt has a new lease, and the old one ends nothing."""
        hand = await rig.worker()
        lease = await handed_over(rig, hand, retry=Retry.immediate(max_attempts=2))
        assert await end(rig, lease, Failed(ErrorInfo("E", "no"))) == "failed"
        rig.move(1)
        await hand.take()
        assert await end(rig, lease) == "lease_lost"
        assert await rig.status(lease.job_id) == "running"
        hand.stage.handles[-1].returns()
        await hand.report()
        assert await rig.statuses(lease.job_id) == ["failed", "succeeded"]

    async def test_a_callback_before_the_hand_over_counts_and_the_worker_reports_nothing(self, rig: Rig) -> None:
        """F3: the target may be faster than its own 202. The token is the fence, whichever process holds the run."""
        hand = await rig.worker()
        lease = await started(rig, hand)
        assert await end(rig, lease) == "succeeded"
        hand.stage.handles[-1].raises(HandedOver())
        await hand.report()
        assert (hand.held, hand.intake.slots.used, hand.worker.held_runs.refused_count) == ([], 0, 0)
        assert (rig.of(LeaseLost), rig.of(HandedOverEvent)) == ([], [])
        assert await rig.statuses(lease.job_id) == ["succeeded"]

    async def test_earlier_output_is_kept_and_more_is_added(self, rig: Rig) -> None:
        """F3, C8: the progress writer may not have run yet."""
        hand = await rig.worker()
        lease = await started(rig, hand)
        hand.stage.handles[-1].context.log("called")
        hand.stage.handles[-1].context.progress(0.25)
        hand.stage.handles[-1].raises(HandedOver())
        await hand.report()
        assert await hear(rig, lease, output="working") is not None
        assert await end(rig, lease) == "succeeded"
        last = await rig.last(lease.job_id)
        assert (last.output, last.progress_json) == ("called\nworking", '{"fraction": 0.25}')

    async def test_a_hand_over_whose_reply_was_lost_is_repeated_without_an_error(self, rig: Rig) -> None:
        """Rule "reconcile lost replies"."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        lease = await started(rig, hand)
        hand.stage.handles[-1].raises(HandedOver())
        between.lose_reply("hand_over")
        with pytest.raises(DatabaseUnavailable):
            await hand.report()
        await hand.report()
        assert await held_by(rig, lease) == callbacks.HOLDER
        assert (hand.held, rig.of(LeaseLost)) == ([], [])
        assert await end(rig, lease) == "succeeded"

    async def test_only_the_worker_that_holds_the_run_hands_it_over(self, rig: Rig) -> None:
        """A3: by both its id and the token."""
        hand = await rig.worker()
        lease = await started(rig, hand)
        async with rig.database.connection() as connection:
            for worker_id, token in ((uuid4(), lease.token), (hand.worker.worker_id, lease.token + 1)):
                assert not await callbacks.hand_over(connection, worker_id, [(lease.run_id, token)])
        assert await held_by(rig, lease) == hand.worker.worker_id

    async def test_a_worker_that_dies_before_the_hand_over_loses_the_run(self, rig: Rig) -> None:
        """F3: the target is called again with the same key; the callback of the first call comes too late."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        lease = await started(rig, hand)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S + 1)
        assert await rig.statuses(lease.job_id) == ["lost"]
        assert await end(rig, lease) == "lease_lost"

    async def test_a_worker_that_dies_after_the_hand_over_loses_nothing(self, rig: Rig) -> None:
        """F3: no sweeper takes the run, because no worker holds it."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        lease = await handed_over(rig, hand)
        await sweeper.run_once()
        await watch(rig, sweeper, 3 * LEASE_S)
        assert [event.worker_id for event in rig.of(WorkerLost)] == [hand.worker.worker_id]
        assert await rig.state(lease.job_id) == "running"
        assert await end(rig, lease) == "succeeded"

    async def test_a_draining_worker_hands_over_a_run_answered_with_202(self, rig: Rig) -> None:
        """F3: the worker cannot stop the target any more, so the run is not handed back to be called twice."""
        hand = await rig.worker(listens=False)
        lease = await started(rig, hand)
        hand.held[0].release("the worker is draining")
        hand.stage.handles[-1].raises(HandedOver())
        await hand.report()
        assert await held_by(rig, lease) == callbacks.HOLDER


class TestItsTime:
    async def test_the_deadline_is_the_jobs_timeout(self, rig: Rig) -> None:
        """F3, rule "the sweeper ends overdue runs"."""
        sweeper = rig.sweeper()
        lease = await handed_over(rig, await rig.worker(), retry=Retry.never())
        await sweeper.run_once()
        rig.move(TIMEOUT_S - 1)
        await sweeper.run_once()
        assert await rig.state(lease.job_id) == "running"
        await watch(rig, sweeper, 5)
        assert await rig.statuses(lease.job_id) == ["timed_out"]
        assert await end(rig, lease) == "lease_lost"

    async def test_a_deadline_of_all_attempts_bounds_it_too_and_without_any_bound_a_day_does(self, rig: Rig) -> None:
        """F3: a limit on everything."""
        hand = await rig.worker()
        bounded = await handed_over(rig, hand, deadline=60)
        run = await rig.run(bounded.job_id)
        assert run is not None
        assert (run["must_end_at"] - run["claimed_at"]).total_seconds() == 60
        boundless = await handed_over(rig, hand, timeout=0)
        run = await rig.run(boundless.job_id)
        assert run is not None
        assert (run["must_end_at"] - run["claimed_at"]).total_seconds() == 86_400

    async def test_a_job_that_must_report_progress_is_ended_when_it_does_not(self, rig: Rig) -> None:
        """F3, C9: each sign of life extends that time."""
        sweeper = rig.sweeper()
        lease = await handed_over(rig, await rig.worker(), progress_within=30, retry=Retry.never())
        for _ in range(5):
            rig.move(25)
            await sweeper.run_once()
            assert await hear(rig, lease) is not None
        await sweeper.run_once()
        await watch(rig, sweeper, 35)
        assert await rig.statuses(lease.job_id) == ["timed_out"]
        assert await hear(rig, lease) is None

    async def test_signs_of_life_do_not_extend_the_timeout(self, rig: Rig) -> None:
        """F3."""
        lease = await handed_over(rig, await rig.worker(), progress_within=3600)
        rig.move(300)
        heard = await hear(rig, lease)
        assert heard is not None
        assert heard.ends_at is not None
        assert (heard.ends_at - rig.clock.database_now()).total_seconds() == TIMEOUT_S - 300


class TestItsCancel:
    async def test_a_cancel_is_sent_to_its_target_which_gets_a_grace_to_stop(self, rig: Rig) -> None:
        """F3, C9: no worker can stop the target, so the run ends after the grace without it."""
        sweeper = rig.sweeper()
        lease = await handed_over(rig, await rig.worker())
        await rig.cancel(lease.job_id)
        heard = await hear(rig, lease)
        assert heard is not None
        assert heard.cancel_requested
        await sweeper.run_once()
        await watch(rig, sweeper, 8)
        assert await rig.state(lease.job_id) == "running"
        await watch(rig, sweeper, 5)
        assert await rig.statuses(lease.job_id) == ["cancelled"]
        assert await rig.status(lease.job_id) == "cancelled"
        assert await hear(rig, lease) is None

    async def test_a_cancelled_run_whose_target_stays_silent_ends_too(self, rig: Rig) -> None:
        """F3: long before its timeout."""
        sweeper = rig.sweeper()
        lease = await handed_over(rig, await rig.worker())
        await rig.cancel(lease.job_id)
        await sweeper.run_once()
        await watch(rig, sweeper, 13)
        assert await rig.statuses(lease.job_id) == ["cancelled"]

    async def test_a_success_that_came_in_time_counts(self, rig: Rig) -> None:
        """Rule "losses have their own budget": its effect has happened."""
        lease = await handed_over(rig, await rig.worker())
        await rig.cancel(lease.job_id)
        assert await end(rig, lease) == "succeeded"
        assert await rig.status(lease.job_id) == "completed"

    async def test_a_run_that_was_cancelled_before_the_hand_over_ends_soon(self, rig: Rig) -> None:
        """F3: the cancel and the 202 crossed."""
        sweeper = rig.sweeper()
        hand = await rig.worker(listens=False)
        lease = await started(rig, hand)
        await rig.cancel(lease.job_id)
        await hand.beat()
        hand.stage.handles[-1].raises(HandedOver())
        await hand.report()
        await sweeper.run_once()
        await watch(rig, sweeper, 13)
        assert await rig.statuses(lease.job_id) == ["cancelled"]


class TestRemoteWorkers:
    async def attend(self, rig: Rig, worker_id: UUID, lease_s: float) -> None:
        async with rig.database.connection() as connection:
            worker = remote_workers.RemoteWorker(worker_id, "far", ["default"], ["a"], 1, 1, lease_s, None)
            await remote_workers.attend(connection, worker, now=rig.clock.database_now())

    async def test_a_remote_worker_is_dead_after_its_own_lease_and_not_the_clusters(self, rig: Rig) -> None:
        """C6, rule "dead only when watched": a remote worker polls less often than a worker sends heartbeats."""
        patient, hasty, ours, sweeper = uuid4(), uuid4(), await rig.worker(), rig.sweeper()
        await self.attend(rig, patient, 5 * LEASE_S)
        await self.attend(rig, hasty, LEASE_S / 2)
        await sweeper.run_once()
        dead_after: dict[UUID, float] = {}
        for second in range(1, round(5 * LEASE_S) + 2):
            await watch(rig, sweeper, 1)
            for event in rig.of(WorkerLost):
                dead_after.setdefault(event.worker_id, second)
        assert dead_after == {hasty: LEASE_S / 2, ours.worker.worker_id: LEASE_S, patient: 5 * LEASE_S}

    async def test_the_runs_of_a_dead_remote_worker_are_retried_by_another(self, rig: Rig) -> None:
        """C6: it spends a loss and no attempt."""
        far, sweeper = uuid4(), rig.sweeper()
        await self.attend(rig, far, 3 * LEASE_S)
        job_id = await rig.submit()
        async with rig.database.connection() as connection:
            await connection.fetch(
                "SELECT * FROM sexton.claim_runs($1, ARRAY['default'], ARRAY['a'], 1, 10, false, '{}', $2)",
                far,
                rig.clock.database_now(),
            )
        await sweeper.run_once()
        await watch(rig, sweeper, 3 * LEASE_S - 1)
        assert await rig.state(job_id) == "running"
        await watch(rig, sweeper, 2)
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"], run["lost_count"]) == ("ready", 0, 1)


async def test_the_reserved_id_is_the_same_in_sql_and_the_key_is_random(rig: Rig) -> None:
    """F3: 256 bits, one row, made by the migration."""
    ((holder,),) = await rig.execute("SELECT sexton.callbacks()")
    assert holder == callbacks.HOLDER
    async with rig.database.connection() as connection:
        assert len(await callbacks.key(connection)) == 32
    assert [tuple(row) for row in await rig.execute("SELECT count(*) FROM sexton.lease_key")] == [(1,)]
