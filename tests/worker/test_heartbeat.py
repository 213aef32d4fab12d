"""The heartbeat: one row for all runs, a comparison of the database's leases with the worker's, and a worker that stops itself
before its leases expire."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from sexton.clock import ManualClock
from sexton.errors import DatabaseUnavailable
from sexton.store.fleet import workers as fleet
from sexton.telemetry.events import DeclaredLost, LeaseLost, LoopStalled, Reconciled, WorkerJoined, WorkerLost
from sexton.worker.execution import Phase
from sexton.worker.heartbeat import ASK_S, FORCE_S, OwnThread
from sexton.worker.stall.loop_pulse import Pulse
from tests.rig import LEASE_S, LONG_S, NOW, Between, HandWorker, Rig, settle


async def started(
    rig: Rig, *, database: Between | None = None, listens: bool = True, **options: Any
) -> tuple[HandWorker, UUID]:
    hand = await rig.worker(database=database, listens=listens)
    job_id = await rig.submit(**{"timeout": 0, **options})
    await hand.take()
    return hand, job_id


async def workers(rig: Rig) -> list[fleet.Worker]:
    async with rig.database.connection() as connection:
        return await fleet.workers(connection)


class TestABeat:
    async def test_it_is_one_statement_for_any_number_of_runs(self, rig: Rig) -> None:
        """C4, B10."""
        between = Between(rig.database)
        hand = await rig.worker(database=between, worker_concurrency=50)
        await rig.submit_many(50)
        await hand.take()
        between.statements.clear()
        assert await hand.beat() == 1.0
        assert between.statements == ["beat"]

    async def test_it_counts_runs_in_processes_separately(self, rig: Rig) -> None:
        """E7: a slot of one kind is not free for the other."""
        hand = await rig.worker(worker_concurrency=50, worker_processes=3)
        hand.worker.process_tasks = frozenset({"a"})
        await rig.submit_many(2)
        await hand.take()
        await hand.beat()
        (me,) = await workers(rig)
        assert (me.running_count, me.process_running_count) == (2, 2)

    async def test_a_worker_that_holds_nothing_beats_half_as_often(self, rig: Rig) -> None:
        """B10: but twice in a lease, and often enough to look for runs (rule "any node does overdue work")."""
        hand = await rig.worker()
        assert await hand.beat() == 2.0
        hurried = await rig.worker(beat_s=1.0, lease_s=2.0)
        assert await hurried.beat() == 1.0
        slow = await rig.worker(beat_s=3.0, lease_s=12.0)
        assert await slow.beat() == 3.0

    async def test_the_first_heartbeat_registers_the_worker(self, rig: Rig) -> None:
        hand = await rig.worker(worker_queues=("mail",))
        (worker,) = await workers(rig)
        assert (worker.id, worker.queues, worker.tasks, worker.concurrency) == (hand.worker.worker_id, ["mail"], ["a"], 4)
        assert [event.worker_id for event in rig.of(WorkerJoined)] == [worker.id]

    async def test_it_contains_what_the_worker_does(self, rig: Rig) -> None:
        hand, _ = await started(rig)
        hand.worker.draining = True
        rig.move(1)
        await hand.beat()
        (worker,) = await workers(rig)
        assert (worker.running_count, worker.draining, worker.beat_at) == (1, True, rig.clock.database_now())

    async def test_a_reply_lost_at_registration_registers_once(self, rig: Rig) -> None:
        """Rule "reconcile lost replies"."""
        between = Between(rig.database)
        between.lose_reply("enlist")
        with pytest.raises(DatabaseUnavailable):
            await rig.worker(database=between)
        assert len(await workers(rig)) == 1


class TestRunsNobodyHeardOf:
    async def test_a_claim_whose_reply_was_lost_goes_back_and_spends_nothing(self, rig: Rig) -> None:
        """Rule "reconcile lost replies"."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit()
        between.lose_reply("claim")
        with pytest.raises(DatabaseUnavailable):
            await hand.take()
        assert await rig.state(job_id) == "running"
        await hand.beat()
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"], run["lost_count"]) == ("ready", 0, 0)
        assert rig.of(Reconciled) == [Reconciled(hand.worker.worker_id, 1)]
        await hand.take()
        assert len(hand.stage.handles) == 1

    async def test_it_is_handed_back_at_once_though_scanning_all_leases_takes_long(self, rig: Rig) -> None:
        """Rule "reconcile lost replies": while another session holds an old snapshot, a worker asks only for the leases that it
        holds, unless a claim was cut short."""
        between = Between(rig.database)
        hand, held = await started(rig, database=between)

        async def slow() -> None:
            rig.move(0.2)

        between.after("beat", slow)
        await hand.beat()
        job_id = await rig.submit()
        between.lose_reply("claim")
        with pytest.raises(DatabaseUnavailable):
            await hand.take()
        await hand.beat()
        await hand.beat()
        assert await rig.state(job_id) == "ready"
        assert await rig.state(held) == "running"

    async def test_a_scan_that_takes_long_does_not_delay_the_heartbeat(self, rig: Rig) -> None:
        """C4: otherwise the worker would look dead, and be declared dead."""
        between = Between(rig.database)
        hand, _ = await started(rig, database=between)

        async def slow() -> None:
            rig.move(0.3)

        between.after("beat", slow)
        await hand.beat()
        rig.move(60)
        between.statements.clear()
        await hand.beat()
        assert between.statements == ["beat", "leased"]
        await hand.beat()
        assert between.statements == ["beat", "leased", "beat"], "that took no time, so it is part of the beat again"

    async def test_leases_that_a_scan_did_not_know_are_asked_for_by_id(self, rig: Rig) -> None:
        """B8: under load every scan finds runs that were just claimed or ended. If each caused another scan, a worker would do
        nothing else while another session holds an old snapshot."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit()
        seen: list[str] = []

        async def slow() -> None:
            rig.move(0.3)

        async def beats() -> None:
            between.after("beat", slow)
            await hand.beat()
            between.statements.clear()
            await hand.beat()
            seen.extend(between.statements)

        between.after("claim", beats)
        await hand.take()
        assert seen == ["beat"]
        assert await rig.state(job_id) == "running"

    async def test_every_heartbeat_asks_for_the_held_leases_however_long_it_takes(self, rig: Rig) -> None:
        """C4, C8: a cancel, and the loss of a lease."""
        between = Between(rig.database)
        hand, job_id = await started(rig, database=between)

        async def slow() -> None:
            rig.move(0.2)

        between.after("beat", slow)
        await hand.beat()
        await rig.cancel(job_id)
        await hand.beat()
        assert hand.stage.handles[0].asked
        await hand.report()

    async def test_a_reply_in_transit_is_waited_for(self, rig: Rig) -> None:
        """Rule "reconcile lost replies": heartbeats between the claim's commit and its reply must not hand the run back."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit()

        async def beats() -> None:
            for _ in range(3):
                await hand.beat()

        between.after("claim", beats)
        await hand.take()
        await hand.beat()
        assert await rig.state(job_id) == "running"
        assert rig.of(Reconciled) == []
        assert [execution.phase for execution in hand.held] == [Phase.RUNNING]

    async def test_later_claims_do_not_keep_an_unknown_lease_alive(self, rig: Rig) -> None:
        """Rule "reconcile lost replies": only claims that had begun when the lease was first seen can still return it. A busy
        worker always has an open claim."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit()
        between.lose_reply("claim")
        with pytest.raises(DatabaseUnavailable):
            await hand.take()

        async def beats() -> None:
            await hand.beat()

        between.before("claim", beats)  # first seen, while the second claim is open
        await hand.take()
        between.before("claim", beats)  # the third is open, the second has ended
        await hand.take()
        assert await rig.statuses(job_id) == ["released"]
        assert rig.of(Reconciled) == [Reconciled(hand.worker.worker_id, 1)]

    async def test_an_at_most_once_run_without_a_reply_is_lost(self, rig: Rig) -> None:
        """C6, rule "bounded prefetch": the committed claim was its start."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        await rig.submit(delivery="at_most_once")
        between.lose_reply("claim")
        with pytest.raises(DatabaseUnavailable):
            await hand.take()
        await hand.beat()
        assert [(letter.status, letter.permanent) for letter in await rig.letters()] == [("lost", True)]

    async def test_a_run_that_ended_in_the_meantime_is_ignored(self, rig: Rig) -> None:
        """The list of a heartbeat is older than reports that were sent in the meantime."""
        between = Between(rig.database)
        hand, job_id = await started(rig, database=between)

        async def ends() -> None:
            hand.stage.handles[0].returns()
            await hand.report()

        between.after("beat", ends)
        await hand.beat()
        assert rig.of(Reconciled) == []
        assert await rig.statuses(job_id) == ["succeeded"]

    async def test_a_run_whose_report_waits_is_known(self, rig: Rig) -> None:
        """Rule "reconcile lost replies": the run has ended, and its report is in transit."""
        hand, job_id = await started(rig)
        hand.stage.handles[0].returns()
        await settle()
        await hand.beat()
        assert rig.of(Reconciled) == []
        await hand.report()
        assert await rig.statuses(job_id) == ["succeeded"]


class TestRunsThatAreOthers:
    async def test_an_execution_whose_lease_is_gone_is_stopped(self, rig: Rig) -> None:
        """C4."""
        hand, job_id = await started(rig, timeout=100)
        rig.timers.stop()
        rig.move(107.5)
        await rig.sweeper().run_once()
        assert await rig.statuses(job_id) == ["timed_out"]
        await hand.beat()
        await settle()
        assert hand.stage.handles[0].asked
        assert hand.held == []
        assert len(rig.of(LeaseLost)) == 1

    async def test_a_run_claimed_after_the_heartbeat_was_sent_is_not_taken_for_lost(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit()

        async def claims() -> None:
            await hand.take()

        between.after("beat", claims)
        await hand.beat()
        assert not hand.stage.handles[0].asked
        assert await rig.state(job_id) == "running"

    async def test_a_cancel_is_delivered(self, rig: Rig) -> None:
        """A5."""
        hand, job_id = await started(rig)
        assert (await rig.cancel(job_id)).asked_count == 1
        assert not hand.stage.handles[0].asked
        await hand.beat()
        assert hand.stage.handles[0].asked
        await hand.report()
        assert await rig.status(job_id) == "cancelled"


class TestDeclaredDead:
    async def test_a_worker_that_was_declared_dead_drops_its_runs_and_joins_again_under_a_new_id(self, rig: Rig) -> None:
        """C4: the declaration was wrong, and costs a repetition, never a double claim."""
        hand, job_id = await started(rig, listens=False)
        old_id = hand.worker.worker_id
        sweeper = rig.sweeper()
        for _ in range(round(LEASE_S) + 1):
            await sweeper.run_once()
            rig.move(1)
        assert [event.worker_id for event in rig.of(WorkerLost)] == [old_id]
        await hand.beat()
        assert rig.of(DeclaredLost) == [DeclaredLost(old_id, 1)]
        assert hand.worker.worker_id != old_id
        assert hand.stage.handles[0].asked
        await hand.beat()
        await hand.take()
        assert [handle.call.job_id for handle in hand.stage.handles] == [job_id, job_id]
        hand.stage.handles[0].returns("from its first life")
        await hand.report()
        assert await rig.state(job_id) == "running"
        hand.stage.handles[1].returns("from its second")
        await hand.report()
        assert (await rig.last(job_id)).result_json == '"from its second"'
        assert await rig.statuses(job_id) == ["lost", "succeeded"]
        assert [event.worker_id for event in rig.of(LeaseLost)] == [old_id]
        assert hand.intake.slots.used == 0

    async def test_that_is_logged_once(self, rig: Rig) -> None:
        """Two heartbeats may notice it before the event loop does."""
        hand, _ = await started(rig)
        old_id = hand.worker.worker_id
        await rig.execute("UPDATE sexton.workers SET lost_at = now()")
        for _ in range(2):
            hand.worker.declared_lost(old_id)
        assert len(rig.of(DeclaredLost)) == 1
        await rig.sweeper().run_once()


class TestCutOff:
    """C4, ADR 009: a worker that cannot send heartbeats stops its own work before others may take it."""

    async def test_it_asks_then_forces_before_the_lease_ends(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand, job_id = await started(rig, database=between, listens=False)
        (handle,) = hand.stage.handles
        between.away = True
        for silent_s, asked, forced in (
            (LEASE_S - ASK_S - 0.1, False, False),
            (LEASE_S - ASK_S, True, False),
            (LEASE_S - FORCE_S - 0.1, True, False),
            (LEASE_S - FORCE_S, True, True),
        ):
            rig.move(silent_s - rig.clock.monotonic())
            with pytest.raises(DatabaseUnavailable):
                await hand.beat()
            hand.heartbeat.watch()
            assert (handle.asked, handle.forced) == (asked, forced), silent_s
        await settle()
        assert rig.clock.monotonic() < LEASE_S
        between.away = False
        await hand.report()
        assert await rig.statuses(job_id) == ["released"]
        assert (await rig.last(job_id)).reason == "the database was not reachable"
        assert await rig.state(job_id) == "ready"

    async def test_the_silence_counts_from_when_the_last_answered_heartbeat_was_sent(self, rig: Rig) -> None:
        """The sweeper may have seen that heartbeat as soon as it was sent, however late the answer came."""
        between = Between(rig.database)
        hand, _ = await started(rig, database=between)

        async def slow() -> None:
            rig.move(LEASE_S - ASK_S - 1)

        between.after("beat", slow)
        await hand.beat()
        rig.move(0.9)
        hand.heartbeat.watch()
        assert not hand.stage.handles[0].asked
        rig.move(0.1)
        hand.heartbeat.watch()
        assert hand.stage.handles[0].asked
        await hand.report()

    async def test_a_heartbeat_that_gets_through_ends_the_silence(self, rig: Rig) -> None:
        hand, _ = await started(rig)
        for _ in range(5):
            rig.move(LEASE_S - ASK_S - 0.1)
            hand.heartbeat.watch()
            await hand.beat()
        hand.heartbeat.watch()
        assert not hand.stage.handles[0].asked

    async def test_a_job_with_a_longer_lease_continues_for_longer(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand, _ = await started(rig, database=between, lease=60)
        between.away = True
        rig.move(57)
        hand.heartbeat.watch()
        assert not hand.stage.handles[0].asked
        rig.move(1)
        hand.heartbeat.watch()
        assert hand.stage.handles[0].asked
        between.away = False
        await hand.report()

    async def test_a_job_with_a_shorter_lease_gets_the_clusters(self, rig: Rig) -> None:
        """No sweeper declares a worker dead before the cluster's lease is over."""
        hand, _ = await started(rig, lease=1)
        rig.move(LEASE_S - ASK_S - 0.1)
        hand.heartbeat.watch()
        assert not hand.stage.handles[0].asked

    @pytest.mark.parametrize("lease_s", [0.3, 1.0, 2.0, 3.0])
    async def test_with_a_short_lease_there_is_still_time_to_work(self, rig: Rig, lease_s: float) -> None:
        hand = await rig.worker(lease_s=lease_s, beat_s=lease_s / 4)
        await rig.submit()
        await hand.take()
        rig.move(lease_s / 2)
        hand.heartbeat.watch()
        assert not hand.stage.handles[0].asked

    async def test_prefetched_runs_are_given_up_too(self, rig: Rig) -> None:
        hand, _ = await started(rig)
        (execution,) = hand.held
        execution.phase = Phase.TAKEN
        rig.move(LEASE_S - ASK_S)
        hand.heartbeat.watch()
        assert execution.phase is Phase.REPORTING


class TestTheLoop:
    async def test_a_hanging_event_loop_stops_the_heartbeat(self, rig: Rig) -> None:
        """Rule "the sweeper ends overdue runs": no run of this worker makes progress, so other workers should take them."""
        hand, job_id = await started(rig)
        between = hand.worker.pulse
        sweeper = rig.sweeper()
        await sweeper.run_once()
        for _ in range(12):
            rig.move(1)
            await hand.heartbeat.run_once()
            await sweeper.run_once()
        assert between.felt_at == 0.0
        (stalled,) = rig.of(LoopStalled)
        assert stalled.stalled_s > 4.0
        assert [event.worker_id for event in rig.of(WorkerLost)] == [hand.worker.worker_id]
        assert await rig.state(job_id) == "ready"

    async def test_a_short_stall_of_the_loop_does_not(self, rig: Rig) -> None:
        hand, _ = await started(rig)
        rig.move(4.0)
        await hand.heartbeat.run_once()
        assert rig.of(LoopStalled) == []
        (worker,) = await workers(rig)
        assert worker.beat_at == rig.clock.database_now()

    async def test_it_is_logged_again_when_it_happens_again(self, rig: Rig) -> None:
        hand, _ = await started(rig)
        for _ in range(2):
            rig.move(5)
            await hand.heartbeat.run_once()
            await hand.heartbeat.run_once()
            await hand.beat()
        assert len(rig.of(LoopStalled)) == 2

    async def test_the_pulse_beats_as_long_as_the_loop_turns(self) -> None:
        clock = ManualClock(NOW)
        pulse = Pulse(clock)

        class Loop:
            again: Callable[[], None]

            def call_later(self, _delay_s: float, again: Any, loop: Any) -> None:
                self.again = partial(again, loop)

        loop = Loop()
        pulse.feel(loop)  # type: ignore[arg-type]
        clock.move(timedelta(seconds=3))
        assert pulse.felt_at == 0.0
        loop.again()
        assert pulse.felt_at == 3.0


class TestOwnThread:
    async def test_it_runs_beside_a_busy_loop_and_stops_on_request(self) -> None:
        """C4: a handler that keeps Python busy cannot stop it."""
        seen: list[str] = []
        beaten = threading.Event()

        async def main(stop: asyncio.Event) -> None:
            seen.append(threading.current_thread().name)
            beaten.set()
            await stop.wait()
            seen.append("stopped")

        thread = OwnThread("sexton-heartbeat", main)
        thread.start()
        assert beaten.wait(LONG_S), "it needs this event loop to run"
        called = threading.Event()
        thread.call(called.set)
        assert called.wait(LONG_S)
        await thread.stop(LONG_S)
        assert seen == ["sexton-heartbeat", "stopped"]
        thread.call(called.set)  # the thread has ended: no effect, and no error

    async def test_a_thread_that_does_not_stop_is_not_waited_for_beyond_its_time(self) -> None:
        release = threading.Event()

        async def stubborn(_stop: asyncio.Event) -> None:
            await asyncio.to_thread(release.wait)

        thread = OwnThread("stubborn", stubborn)
        thread.start()
        async with asyncio.timeout(LONG_S):
            await thread.stop(0.01)
        release.set()
        await thread.stop(LONG_S)
