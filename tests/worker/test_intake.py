"""The intake: one run at once when idle, hundreds under load, and never more than there are slots for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from sexton.errors import DatabaseUnavailable
from sexton.store.postgres.wakeups import READY
from sexton.store.sharing import parked_runs
from sexton.telemetry.events import Claimed, LeaseLost
from sexton.worker import intake
from sexton.worker.execution import Phase
from sexton.worker.intake import AHEAD_LIMIT, AHEAD_S, GATHER_S, LAST_LOOK_S, OVERDUE_LOOK_S, STALE_S, TURN_S
from sexton.worker.overdue import OverdueWork
from tests.rig import LEASE_S, Between, HandWorker, Rig, settle

if TYPE_CHECKING:
    from tests.store.support import Conn

ROUND_S = 0.01


async def end_all(hand: HandWorker) -> int:
    ended = hand.stage.running
    for handle in ended:
        handle.returns()
    await settle()
    return len(ended)


async def rounds(rig: Rig, hand: HandWorker, count: int) -> None:
    """Under load: every ten milliseconds all handlers end, and the intake looks as often as it wants."""
    for _ in range(count):
        rig.move(ROUND_S)
        await end_all(hand)
        while await hand.take() == 0.0:
            pass
        await hand.report()


def taken(hand: HandWorker) -> list[UUID]:
    """Leased, and waiting for a slot."""
    return [execution.claimed.lease.job_id for execution in hand.held if execution.phase is Phase.TAKEN]


async def under_load(rig: Rig) -> HandWorker:
    """A worker at a rate of some hundred starts per second, with prefetched runs and many more waiting."""
    hand = await rig.worker(worker_concurrency=8)
    await rig.submit_many(2000)
    await rounds(rig, hand, 12)
    assert taken(hand), "it takes nothing ahead"
    return hand


class TestIdle:
    async def test_a_single_run_starts_at_once(self, rig: Rig) -> None:
        """B8, C1: by the first look after it was submitted."""
        hand = await rig.worker()
        job_id = await rig.submit(payload={"n": 1})
        await hand.take()
        (handle,) = hand.stage.handles
        assert (handle.call.job_id, handle.call.arguments) == (job_id, {"n": 1})
        assert rig.of(Claimed) == [Claimed(hand.worker.worker_id, 1)]

    async def test_after_a_run_or_a_notification_it_looks_once_more_before_it_rests(self, rig: Rig) -> None:
        """B8: submitters hold back notifications for ten milliseconds; one look after that finds these runs."""
        hand = await rig.worker()
        await rig.submit()
        assert await hand.take() == LAST_LOOK_S > 0.010
        assert 1.6 <= await hand.take() <= 2.0
        hand.intake.hear()
        assert hand.intake.wake.is_set
        assert await hand.take() == LAST_LOOK_S
        assert 1.6 <= await hand.take() <= 2.0

    async def test_an_idle_look_is_one_statement(self, rig: Rig) -> None:
        """B10."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        between.statements.clear()
        for _ in range(3):
            await hand.take()
        assert between.statements == ["claim"] * 3

    async def test_no_setting_makes_it_sleep_longer_than_two_seconds(self, rig: Rig) -> None:
        """Rule "any node does overdue work": a notification may be lost."""
        hand = await rig.worker(poll_s=600)
        await hand.take()
        assert await hand.take() <= 2.0

    async def test_idle_workers_do_not_look_at_the_same_times(self, rig: Rig) -> None:
        hand = await rig.worker()
        await hand.take()
        assert len({await hand.take() for _ in range(5)}) == 5

    async def test_runs_that_no_scheduler_promoted_are_promoted_by_an_idle_worker(self, rig: Rig) -> None:
        """B2, rule "any node does overdue work": without any scheduler, an idle worker promotes runs that are five seconds
        late, and claims them at once."""
        hand = await rig.worker()
        job_id = await rig.submit(delay=1)
        for _ in range(4):
            rig.move(1.45)
            await hand.beat()
            await hand.take()
        assert await rig.state(job_id) == "waiting"
        for _ in range(8):
            rig.move(1.45)
            await hand.beat()
            await hand.take()
            if hand.intake.wake.is_set:
                break
        assert await rig.state(job_id) == "ready"
        await hand.take()
        assert await rig.state(job_id) == "running"

    async def test_runs_that_an_idle_worker_made_ready_are_announced_to_the_workers_of_their_queue(
        self, rig: Rig, connection: Conn
    ) -> None:
        """B10: runs that a limit held back, in a queue that this worker does not serve."""
        heard: list[str] = []
        await connection.add_listener(READY, lambda _connection, _pid, _channel, queue: heard.append(str(queue)))
        await rig.submit(queue="mail", limit={"key": "stripe", "running": 1})
        await connection.fetch("SELECT 1")
        heard.clear()
        assert await OverdueWork(rig.database, None, clock=rig.clock).see_to() == 1
        await connection.fetch("SELECT 1")
        assert heard == ["mail"]

    async def test_looking_for_overdue_runs_is_rare(self, rig: Rig) -> None:
        """B10: once in five seconds, and not at all under load."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        for _ in range(20):
            rig.move(1)
            await hand.beat()
            await hand.take()
        assert between.statements.count("promote") == 20 / OVERDUE_LOOK_S

    async def test_nothing_is_claimed_while_a_heartbeat_is_overdue(self, rig: Rig) -> None:
        """C4: after an outage the worker first sends a heartbeat; runs claimed before that would be handed back at once."""
        hand = await rig.worker()
        job_id = await rig.submit()
        rig.move(LEASE_S)
        await hand.take()
        assert await rig.state(job_id) == "ready"
        await hand.beat()
        await hand.take()
        assert await rig.state(job_id) == "running"


class TestSlots:
    async def test_it_claims_no_more_than_it_has_slots_for(self, rig: Rig) -> None:
        """C1: a full worker leaves runs in the store."""
        hand = await rig.worker(worker_concurrency=4)
        await rig.submit_many(10)
        assert await hand.take() == 0.0, "there may be more"
        for _ in range(3):
            assert await hand.take() == 2.0, "but no room for it"
        assert await rig.states() == ["ready"] * 6 + ["running"] * 4
        assert len(hand.stage.running) == 4

    async def test_a_slot_that_becomes_free_is_used_at_once(self, rig: Rig) -> None:
        """B8, C1."""
        hand = await rig.worker(worker_concurrency=2)
        await rig.submit_many(3)
        await hand.take()
        await hand.take()
        assert not hand.intake.wake.is_set
        hand.stage.running[0].returns()
        await settle()
        assert hand.intake.wake.is_set
        await hand.take()
        assert len(hand.stage.handles) == 3
        assert hand.intake.slots.used == 2

    async def test_every_slot_becomes_free_however_its_execution_ended(self, rig: Rig) -> None:
        """C1: with leaked slots a worker would slowly stop."""
        hand = await rig.worker(worker_concurrency=4)
        await rig.submit_many(4, timeout=5)
        await hand.take()
        first, second, third, _fourth = hand.stage.handles
        first.returns()
        second.raises(ValueError("no luck"))
        third.raises(SystemExit(3))
        await settle()
        rig.move(5)
        await hand.report()
        assert hand.intake.slots.used == 0
        assert hand.held == []

    async def test_a_failed_claim_costs_no_slot(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        await rig.submit()
        for break_it in (between.refuse, between.lose_reply):
            break_it("claim")
            with pytest.raises(DatabaseUnavailable):
                await hand.take()
            assert (hand.intake.slots.used, hand.worker.held_runs.claims_under_way) == (0, frozenset())

    async def test_ten_workers_start_each_run_once(self, rig: Rig) -> None:
        """B1: claimed by exactly one."""
        hands = [await rig.worker(worker_concurrency=7) for _ in range(10)]
        await rig.submit_many(60)
        for hand in hands:
            await hand.take()
        started = [handle.call.run_id for hand in hands for handle in hand.stage.handles]
        assert len(started) == len(set(started)) == 60


class TestWhatIsNotReported:
    async def test_nothing_is_claimed_while_too_many_reports_wait(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """C4: found by parking 10,000 calls to a dead host. Results that are not reported yet are lost with their worker."""
        monkeypatch.setattr(intake, "UNREPORTED_LIMIT", 8)
        hand = await rig.worker(worker_concurrency=8)
        await rig.submit_many(20)
        await hand.take()
        await end_all(hand)
        assert 0.0 < await hand.take() <= GATHER_S
        assert hand.stage.running == []
        await hand.report()
        await hand.take()
        assert hand.stage.running


class TestAhead:
    async def test_a_prefetched_run_starts_within_about_fifty_milliseconds(self, rig: Rig) -> None:
        """Rule "bounded prefetch": at the current rate, and never more than a limit."""
        hand = await rig.worker(worker_concurrency=8)
        await rig.submit_many(1500)
        for _ in range(40):
            await rounds(rig, hand, 1)
            pace_per_s = 8 / ROUND_S
            assert len(taken(hand)) <= min(pace_per_s * AHEAD_S * 1.5, AHEAD_LIMIT)
        assert taken(hand)

    async def test_a_slow_worker_prefetches_nothing(self, rig: Rig) -> None:
        """Rule "bounded prefetch": other workers may be free."""
        hand = await rig.worker(worker_concurrency=4)
        await rig.submit_many(100)
        for _ in range(10):
            rig.move(1)
            await end_all(hand)
            while await hand.take() == 0.0:
                pass
            assert taken(hand) == []

    async def test_a_prefetched_run_starts_when_a_slot_becomes_free_without_a_statement(self, rig: Rig) -> None:
        """B8."""
        hand = await under_load(rig)
        before = len(hand.stage.handles)
        next_job = taken(hand)[0]
        hand.stage.running[0].returns()
        await settle()
        assert hand.stage.handles[before].call.job_id == next_job

    async def test_prefetched_runs_are_handed_back_when_handlers_become_slow(self, rig: Rig) -> None:
        """Rule "bounded prefetch": another worker may be faster. Nothing is spent."""
        hand = await under_load(rig)
        waiting = taken(hand)
        rig.move(STALE_S + 0.01)
        await hand.take()
        await hand.report()
        assert taken(hand) == []
        for job_id in waiting:
            run = await rig.run(job_id)
            assert run is not None
            assert (run["state"], run["attempt"], run["lost_count"]) == ("ready", 0, 0)
        assert await rig.statuses(waiting[0]) == ["released"]

    async def test_a_run_that_was_prefetched_long_ago_does_not_start_when_a_slot_becomes_free(self, rig: Rig) -> None:
        """Rule "bounded prefetch": the process was paused, and another worker may hold the run by now."""
        hand = await under_load(rig)
        before = len(hand.stage.handles)
        rig.move(STALE_S + 0.01)
        hand.stage.running[0].returns()
        await settle()
        assert len(hand.stage.handles) == before

    async def test_with_prefetched_runs_it_looks_again_before_they_are_too_old(self, rig: Rig) -> None:
        """Rule "bounded prefetch": after a second, not the two seconds of an idle worker."""
        hand = await under_load(rig)
        while (rest_s := await hand.take()) == 0.0:
            pass
        assert rest_s <= STALE_S

    async def test_at_most_once_is_never_prefetched(self, rig: Rig) -> None:
        """Rule "bounded prefetch": its claim is its start."""
        hand = await rig.worker(worker_concurrency=8)
        for _ in range(20):
            await rig.submit_many(50)
            await rig.submit_many(10, delivery="at_most_once")
        takes_ahead = False
        for _ in range(40):
            await rounds(rig, hand, 1)
            assert not any(e.claimed.lease.at_most_once for e in hand.held if e.phase is Phase.TAKEN)
            takes_ahead = takes_ahead or bool(taken(hand))
        assert takes_ahead, "or there was nothing to see"

    async def test_at_most_once_is_not_starved_by_runs_that_may_be_prefetched(self, rig: Rig) -> None:
        """B8, C8, rule "bounded prefetch": a critical run starts within a second, however many less urgent runs the worker
        executes."""
        hand = await under_load(rig)
        job_id = await rig.submit(delivery="at_most_once", priority="critical")
        for _ in range(round(1.0 / ROUND_S)):
            await rounds(rig, hand, 1)
            if await rig.state(job_id) != "ready":
                break
        assert "ready" in await rig.states(), "the crowd was not large enough to show anything"
        assert await rig.state(job_id) != "ready"

    async def test_a_limited_run_that_a_prefetch_skipped_does_not_wait_for_the_next_notification(self, rig: Rig) -> None:
        """C10, rule "bounded prefetch": the run that released the slot has already sent the only notification."""
        hand = await rig.worker(worker_concurrency=20)
        await rig.submit_many(60, limit={"key": "stripe", "running": 5})
        async with rig.database.connection() as connection:
            await parked_runs.release(connection, now=rig.clock.database_now())
        await hand.take()
        for _ in range(8):
            assert len(hand.stage.running) == 5
            rig.move(0.02)
            await end_all(hand)
            await hand.take()  # before the report has released the slot
            await hand.report()
            hand.intake.hear()
            while await hand.take() == 0.0:
                pass

    async def test_a_prefetched_run_that_is_cancelled_or_lost_is_not_started(self, rig: Rig) -> None:
        """A5, C4."""
        hand = await under_load(rig)
        cancelled, lost, *_ = [e for e in hand.held if e.phase is Phase.TAKEN]
        await rig.cancel(cancelled.claimed.lease.job_id)
        await hand.beat()
        lost.lose()
        for _ in range(4):
            await end_all(hand)
        started = {handle.call.job_id for handle in hand.stage.handles}
        assert not started & {cancelled.claimed.lease.job_id, lost.claimed.lease.job_id}
        await hand.report()
        assert await rig.status(cancelled.claimed.lease.job_id) == "cancelled"
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()


class TestBothHands:
    async def test_the_second_claim_loop_rests_until_one_claim_was_not_enough(self, rig: Rig) -> None:
        """B8, B10: an idle worker pays for one loop."""
        between = Between(rig.database)
        hand = await rig.worker(database=between, worker_concurrency=40)
        _, second = hand.intake.hands
        await rig.submit_many(5)
        between.statements.clear()
        assert await second.run_once() > 0
        await hand.take()
        assert await second.run_once() > 0
        assert between.statements == ["claim"]

    async def test_under_load_the_database_works_on_one_claim_while_another_is_started(self, rig: Rig) -> None:
        """B8."""
        between = Between(rig.database)
        hand = await rig.worker(database=between, worker_concurrency=40)
        first, second = hand.intake.hands
        await rig.submit_many(200)
        await hand.take()
        await end_all(hand)
        under_way: list[int] = []

        async def reach_with_the_other() -> None:
            await second.run_once()
            under_way.append(len(hand.worker.held_runs.claims_under_way))

        between.before("claim", reach_with_the_other)
        await first.run_once()
        assert under_way == [1], "the second came back while the first was on its way"
        assert len(hand.stage.running) == 40

    @pytest.mark.parametrize("options", [{"delivery": "at_most_once"}, {"limit": {"key": "k", "running": 1000}}])
    async def test_runs_that_are_never_prefetched_find_their_slot_whatever_the_other_claim_returns(
        self, rig: Rig, options: dict[str, Any]
    ) -> None:
        """Rule "bounded prefetch": slots promised to an open claim are not filled with prefetched runs."""
        between = Between(rig.database)
        hand = await rig.worker(database=between, worker_concurrency=40)
        first, second = hand.intake.hands
        await rig.submit_many(2000)
        await rounds(rig, hand, 12)
        while await end_all(hand):
            pass
        held_back = set(await rig.submit_many(20, priority="critical", **options))
        async with rig.database.connection() as connection:
            await parked_runs.release(connection, now=rig.clock.database_now())
        rig.move(TURN_S)
        await hand.beat()
        first.claimed_ahead, second.claimed_ahead = True, False  # so that the first one claims for free slots next

        async def reach_with_the_other() -> None:
            await second.run_once()
            assert taken(hand), "it takes nothing ahead"

        between.before("claim", reach_with_the_other)
        await first.run_once()
        assert held_back <= {handle.call.job_id for handle in hand.stage.running}

    async def test_a_failed_claim_of_either_loop_leaves_no_slot_promised(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand = await rig.worker(database=between, worker_concurrency=40)
        await rig.submit_many(200)
        await hand.take()
        await end_all(hand)
        for one in hand.intake.hands:
            between.refuse("claim")
            with pytest.raises(DatabaseUnavailable):
                await one.run_once()
        for one in hand.intake.hands:
            await one.run_once()
        assert len(hand.stage.running) == 40

    async def test_a_drain_waits_for_the_claims_of_both(self, rig: Rig) -> None:
        """C12: and hands back the runs that they return."""
        between = Between(rig.database)
        hand = await rig.worker(database=between, worker_concurrency=40)
        _, second = hand.intake.hands
        await rig.submit_many(200)
        await hand.take()
        await end_all(hand)
        started = len(hand.stage.handles)
        at_rest: list[asyncio.Task[None]] = []

        async def close() -> None:
            hand.intake.close("the worker is draining")
            at_rest.append(asyncio.create_task(hand.intake.at_rest()))
            await settle()
            assert not at_rest[0].done()

        between.after("claim", close)
        await second.run_once()
        await at_rest[0]
        await hand.report()
        assert len(hand.stage.handles) == started
        assert hand.held == []


class TestClosing:
    async def test_a_closed_intake_claims_no_more_and_hands_back_runs_that_have_not_started(self, rig: Rig) -> None:
        """C12."""
        hand = await under_load(rig)
        waiting = taken(hand)
        hand.intake.close("the worker is draining")
        claims = len(rig.of(Claimed))
        await hand.take()
        await hand.report()
        assert len(rig.of(Claimed)) == claims
        assert taken(hand) == []
        for job_id in waiting:
            assert await rig.state(job_id) == "ready"
        await end_all(hand)
        await hand.report()
        assert hand.held == []

    async def test_runs_of_an_open_claim_are_handed_back(self, rig: Rig) -> None:
        """C12."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit()

        async def close() -> None:
            hand.intake.close("the worker is draining")

        between.after("claim", close)
        await hand.take()
        await hand.report()
        assert hand.stage.handles == []
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"]) == ("ready", 0)

    async def test_an_at_most_once_run_of_an_open_claim_is_started(self, rig: Rig) -> None:
        """C12, rule "bounded prefetch": its claim was its start, so it starts; handing it back would bury it unstarted."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id = await rig.submit(delivery="at_most_once")

        async def close() -> None:
            hand.intake.close("the worker is draining")

        between.after("claim", close)
        await hand.take()
        await end_all(hand)
        await hand.report()
        assert await rig.letters() == []
        assert await rig.status(job_id) == "completed"


class TestWhose:
    async def test_an_unknown_task_waits_for_a_worker_that_knows_it(self, rig: Rig) -> None:
        """Rule "claim only known tasks": a rolling deploy."""
        old, new = await rig.worker(tasks=("a",)), await rig.worker(tasks=("a", "b"))
        job_id = await rig.submit("b")
        await old.take()
        assert await rig.state(job_id) == "ready"
        await new.take()
        assert await rig.state(job_id) == "running"

    async def test_it_claims_only_from_its_queues(self, rig: Rig) -> None:
        """C11."""
        hand = await rig.worker(worker_queues=("mail", "print"))
        default, mail = await rig.submit(), await rig.submit(queue="mail")
        await hand.take()
        assert (await rig.state(default), await rig.state(mail)) == ("ready", "running")

    async def test_it_wakes_only_for_its_queues(self, rig: Rig) -> None:
        """B10, C11."""
        hand = await rig.worker(worker_queues=("mail",))
        hand.intake.wake.clear()
        hand.worker.hear("default")
        assert not hand.intake.wake.is_set
        hand.worker.hear("mail")
        assert hand.intake.wake.is_set
        hand.intake.wake.clear()
        hand.worker.hear("")
        assert hand.intake.wake.is_set, "after a reconnection anything may have been missed"

    async def test_a_worker_declared_dead_claims_nothing(self, rig: Rig) -> None:
        """C4."""
        hand = await rig.worker()
        await rig.execute("UPDATE sexton.workers SET lost_at = now()")
        job_id = await rig.submit()
        await hand.take()
        assert await rig.state(job_id) == "ready"

    async def test_runs_claimed_under_the_id_of_a_worker_that_was_declared_dead_are_dropped(self, rig: Rig) -> None:
        """C4: a worker that was paused between its claim and the reply."""
        between = Between(rig.database)
        hand = await rig.worker(database=between)
        job_id, old_id = await rig.submit(timeout=0), hand.worker.worker_id

        async def dies() -> None:
            await rig.execute("UPDATE sexton.workers SET lost_at = $1", rig.clock.database_now())
            hand.worker.declared_lost(old_id)

        between.after("claim", dies)
        await hand.take()
        assert hand.worker.worker_id != old_id
        await hand.beat()
        await hand.report()
        assert hand.held == []
        assert [event.worker_id for event in rig.of(LeaseLost)] == [old_id]
        assert hand.intake.slots.used == 0
        await rig.sweeper().run_once()
        assert await rig.state(job_id) == "ready"
