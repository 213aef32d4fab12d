"""The sweeper: which workers are dead, what happens to their runs, and runs that exceed their time or do not start in time."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from sexton.domain.retry import Retry
from sexton.domain.run import Report
from sexton.errors import DatabaseUnavailable
from sexton.scheduler.sweeper import NAMED_LIMIT, Sweeper
from sexton.store.fleet import workers
from sexton.store.work import runs
from sexton.telemetry.events import RunsLost, Swept, WorkerLost
from tests.rig import LEASE_S, LONG_S, Between, HandWorker, Rig
from tests.timetable import Timetable


async def watch(rig: Rig, sweeper: Sweeper, span_s: float, *, step_s: float = 1.0, beat: HandWorker | None = None) -> None:
    """Lets that much time pass; the sweeper looks after every step."""
    for _ in range(round(span_s / step_s)):
        rig.move(step_s)
        if beat is not None:
            await beat.beat()
        await sweeper.run_once()


async def running(rig: Rig, hand: HandWorker, **options: Any) -> UUID:
    """A job that the worker has started."""
    job_id = await rig.submit(**options)
    await rig.promote()
    await hand.take()
    assert await rig.state(job_id) == "running"
    return job_id


async def take_suspects(rig: Rig, *, parent_id: UUID | None = None, wanted: int = 100) -> tuple[UUID, list[UUID]]:
    """Claimed by a new worker in quarantine: its id, and the jobs."""
    worker_id = uuid4()
    async with rig.database.connection() as connection:
        now = rig.clock.database_now()
        served: dict[str, Any] = {"queues": ["default"], "tasks": ["a"], "now": now}
        await workers.enlist(connection, worker_id, name="q", concurrency=100, quarantine=True, parent_id=parent_id, **served)
        taken = await runs.claim_suspects(connection, worker_id, wanted=wanted, grace_s=5.0, **served)
    return worker_id, [one.lease.job_id for one in taken]


class TestTheDead:
    async def test_a_worker_is_dead_after_a_whole_lease_of_watching_and_not_before(self, rig: Rig) -> None:
        """C4, rule "dead only when watched": its runs go back and spend a loss, not an attempt."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S - 1)
        assert await rig.state(job_id) == "running"
        assert rig.of(WorkerLost) == []
        await watch(rig, sweeper, 1)
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"], run["lost_count"], run["worker_id"]) == ("ready", 0, 1, None)
        assert rig.of(WorkerLost) == [WorkerLost(hand.worker.worker_id, LEASE_S)]
        assert rig.of(Swept) == [Swept(1, 0, 0)]
        assert await rig.statuses(job_id) == ["lost"]

    async def test_a_sweeper_that_has_just_started_declares_no_worker_dead(self, rig: Rig) -> None:
        """Rule "dead only when watched": however old the last heartbeat is by the database's clock, the sweeper has to watch it
        itself."""
        hand = await rig.worker()
        job_id = await running(rig, hand, timeout=0)
        rig.move(3600)
        for _ in range(2):
            sweeper = rig.sweeper()
            await sweeper.run_once()
            await watch(rig, sweeper, LEASE_S - 1)
        assert await rig.state(job_id) == "running"

    async def test_every_heartbeat_restarts_the_watch(self, rig: Rig) -> None:
        """C4: one heartbeat in nearly a lease is enough."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand, timeout=0)
        for _ in range(5):
            await watch(rig, sweeper, LEASE_S - 1)
            await hand.beat()
        await sweeper.run_once()
        assert await rig.state(job_id) == "running"

    async def test_a_worker_that_died_after_a_while_is_found_a_lease_after_its_last_heartbeat(self, rig: Rig) -> None:
        """C4."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand, timeout=0)
        await watch(rig, sweeper, 3, beat=hand)
        await watch(rig, sweeper, LEASE_S - 1)
        assert await rig.state(job_id) == "running"
        await watch(rig, sweeper, 1)
        assert await rig.state(job_id) == "ready"

    async def test_a_dead_worker_is_found_in_time_though_scanning_the_running_runs_takes_long(self, rig: Rig) -> None:
        """C4: every look reads the heartbeats; only a change leads to a scan."""
        between = Between(rig.database)
        hand, sweeper = await rig.worker(), rig.sweeper(between)
        job_id = await running(rig, hand, timeout=0)
        await hand.beat()

        async def slow() -> None:
            rig.move(0.2)

        between.after("survey", slow)
        await watch(rig, sweeper, LEASE_S + 1)
        assert await rig.state(job_id) == "ready"

    async def test_a_long_gap_between_two_looks_counts_little(self, rig: Rig) -> None:
        """Rule "dead only when watched": the sweeper itself was paused, which says nothing about the workers."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand, timeout=0)
        await sweeper.run_once()
        for _ in range(2):
            rig.move(3600)
            await sweeper.run_once()
        assert await rig.state(job_id) == "running"
        rig.move(3600)
        await sweeper.run_once()
        assert await rig.state(job_id) == "ready", "three thirds of a lease"

    @pytest.mark.parametrize("broken", ["survey", "declare_lost", "abandoned", "finish"])
    async def test_after_an_outage_no_worker_is_dead_yet(self, rig: Rig, broken: str) -> None:
        """Rule "dead only when watched", D4: a look that failed does not count, wherever it failed."""
        between = Between(rig.database)
        hand, sweeper = await rig.worker(), rig.sweeper(between)
        job_id = await running(rig, hand, timeout=0)
        other = await rig.worker()
        second = await running(rig, other, timeout=0)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S - 1, beat=other)
        between.refuse(broken)
        rig.move(1)
        with pytest.raises(DatabaseUnavailable):
            await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S)
        assert await rig.state(second) == "running", "the look after the outage is the first"
        await watch(rig, sweeper, 1)
        assert await rig.state(second) == "ready"
        assert await rig.state(job_id) == "ready"

    async def test_a_heartbeat_at_the_last_moment_saves_the_worker(self, rig: Rig) -> None:
        """C4: declaring a worker dead is a compare-and-set on the heartbeat that was seen."""
        between = Between(rig.database)
        hand, sweeper = await rig.worker(), rig.sweeper(between)
        job_id = await running(rig, hand)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S - 1)

        async def beats() -> None:
            await hand.beat()

        between.before("declare_lost", beats)
        await watch(rig, sweeper, 1)
        assert "declare_lost" in between.statements
        assert await rig.state(job_id) == "running"
        assert rig.of(WorkerLost) == []
        await watch(rig, sweeper, LEASE_S - 1)
        assert await rig.state(job_id) == "running"

    async def test_a_job_with_a_longer_lease_is_left_to_its_worker_for_that_long(self, rig: Rig) -> None:
        """C4: jobs that take hours, on a worker with a slow network."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        short = await running(rig, hand, timeout=0)
        long = await running(rig, hand, timeout=0, lease=20)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S)
        assert (await rig.state(short), await rig.state(long)) == ("ready", "running")
        await watch(rig, sweeper, 20 - LEASE_S - 1)
        assert await rig.state(long) == "running"
        await watch(rig, sweeper, 1)
        assert await rig.state(long) == "ready"

    async def test_runs_of_an_unknown_worker_are_taken_at_once(self, rig: Rig) -> None:
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand)
        await rig.execute("DELETE FROM sexton.workers")
        await sweeper.run_once()
        assert await rig.state(job_id) == "ready"

    async def test_a_worker_that_left_is_forgotten(self, rig: Rig) -> None:
        hand, sweeper = await rig.worker(), rig.sweeper()
        await sweeper.run_once()
        async with rig.database.connection() as connection:
            await workers.leave(connection, hand.worker.worker_id)
        await watch(rig, sweeper, 3 * LEASE_S)
        assert rig.of(WorkerLost) == []

    async def test_the_output_of_a_handler_is_kept_with_the_loss(self, rig: Rig) -> None:
        """C13: the last output of a worker that died."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand)
        hand.stage.handles[0].context.log("half way")
        hand.stage.handles[0].context.progress(0.5)
        await hand.worker.progress_writer.run_once()
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S)
        lost = await rig.last(job_id)
        assert (lost.status, lost.output, lost.progress_json) == ("lost", "half way", '{"fraction": 0.5}')

    async def test_the_late_result_of_a_slow_worker_is_rejected(self, rig: Rig) -> None:
        """C4: fencing by token."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S)
        hand.stage.handles[0].returns("late")
        await hand.report()
        assert await rig.statuses(job_id) == ["lost"]
        assert await rig.state(job_id) == "ready"

    async def test_two_sweepers_end_each_run_once(self, rig: Rig) -> None:
        """B1, B2: any number of schedulers sweep."""
        hand = await rig.worker(worker_concurrency=40)
        jobs = await rig.submit_many(40)
        await hand.take()
        both = [rig.sweeper(), rig.sweeper()]
        for _ in range(round(LEASE_S) + 1):
            await asyncio.gather(*(sweeper.run_once() for sweeper in both))
            rig.move(1)
        assert await rig.states() == ["ready"] * 40
        for job_id in jobs:
            assert await rig.statuses(job_id) == ["lost"]
        assert sum(event.lost_count for event in rig.of(Swept)) == 40
        assert len(rig.of(WorkerLost)) == 1

    async def test_more_than_one_batch_is_taken_in_one_pass(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sexton.scheduler.sweeper.BATCH", 3)
        hand = await rig.worker(worker_concurrency=10)
        await rig.submit_many(7)
        await hand.take()
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        assert await rig.states() == ["ready"] * 7
        assert rig.of(Swept) == [Swept(7, 0, 0)]


class TestTheNextLook:
    async def test_while_nothing_runs_it_looks_every_two_seconds(self, rig: Rig) -> None:
        """B10: the silence of a worker does not matter then."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        assert await sweeper.run_once() == 2.0
        await running(rig, hand)
        assert await sweeper.run_once() == 1.0

    async def test_a_lease_that_expires_between_two_looks_is_swept_without_delay(self, rig: Rig) -> None:
        """C4: a dead worker is found when the lease ends, not up to one interval later."""
        hand, sweeper = await rig.worker(), rig.sweeper(lease_s=2.5)
        job_id = await running(rig, hand)
        await sweeper.run_once()
        rests_s = []
        for _ in range(4):
            rig.move(0.8)
            rests_s.append(await sweeper.run_once())
        assert rests_s == [1.0, pytest.approx(0.9), pytest.approx(0.1), 1.0]
        assert await rig.state(job_id) == "ready"

    async def test_it_wakes_the_planner_when_there_is_something_to_plan_or_to_take_back(self, rig: Rig) -> None:
        """B10, rule "any node does overdue work": so the planner does not have to poll for it."""
        woken: list[str] = []
        sweeper = rig.sweeper(to_plan=lambda: woken.append("planner"))
        table = Timetable(rig)
        await table.write(schedule={"cron": "0 * * * *"})
        await sweeper.run_once()
        assert woken == [], "its first fire was planned as it was written"
        rig.move(3599)
        await sweeper.run_once()
        assert woken == ["planner"]
        await table.planner.run_once()
        await sweeper.run_once()
        assert woken == ["planner"]
        rig.move(62)
        await sweeper.run_once()
        assert woken == ["planner"] * 2, "a fire that was not promoted for a minute"


class TestWhatFollowsALoss:
    async def test_at_most_once_ends_in_the_dead_letters(self, rig: Rig) -> None:
        """C6, rule "bounded prefetch": its claim was its start; a crash ends it as lost."""
        hand = await rig.worker()
        job_id = await running(rig, hand, delivery="at_most_once")
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        (letter,) = await rig.letters()
        assert (letter.job_id, letter.status, letter.permanent) == (job_id, "lost", True)
        assert "at most once" in letter.reason
        assert rig.of(RunsLost) == [RunsLost(1, (f"a {letter.run_id}",))]
        assert await rig.state(job_id) is None
        assert await rig.status(job_id) == "failed"

    async def test_of_many_lost_runs_a_few_are_named(self, rig: Rig) -> None:
        """C18: one line of the log, whatever the worker held."""
        hand = await rig.worker(worker_concurrency=NAMED_LIMIT + 5)
        await rig.submit_many(NAMED_LIMIT + 5, delivery="at_most_once")
        while await hand.take() == 0.0:
            pass
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        (told,) = rig.of(RunsLost)
        ids = {str(letter.run_id) for letter in await rig.letters()}
        assert told.count == len(ids) == NAMED_LIMIT + 5
        assert len(told.runs) == NAMED_LIMIT
        assert {named.removeprefix("a ") for named in told.runs} <= ids

    async def test_a_job_that_takes_its_workers_down_ends_in_the_dead_letters(self, rig: Rig) -> None:
        """Rule "losses have their own budget": three by default; the job has not spent a single attempt."""
        job_id = await rig.submit()
        for lost_count, state in ((1, "ready"), (2, "quarantined"), (3, None)):
            if state is None:
                await take_suspects(rig)
            else:
                await (await rig.worker()).take()
            await rig.execute("DELETE FROM sexton.workers")
            await rig.sweeper().run_once()
            run = await rig.run(job_id)
            if run is not None:
                assert (run["state"], run["lost_count"], run["attempt"]) == (state, lost_count, 0)
        (letter,) = await rig.letters()
        assert (letter.lost_count, letter.reason) == (
            3,
            "it took down 3 workers; the limit is 3: its worker stopped sending heartbeats; the worker held no other run",
        )
        assert await rig.statuses(job_id) == ["lost"] * 3

    async def test_each_job_sets_how_many_workers_it_may_take_down(self, rig: Rig) -> None:
        """Rule "losses have their own budget"."""
        hand = await rig.worker()
        await running(rig, hand, max_lost=1)
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        assert [letter.status for letter in await rig.letters()] == ["lost"]

    async def test_a_run_is_judged_by_its_own_version_of_the_job(self, rig: Rig) -> None:
        """A6, rule "losses have their own budget": an edit applies to later runs."""
        table = Timetable(rig, takes_s=LONG_S)
        job_id = await table.write(policy={"max_lost": 3})
        await table.until(15)
        assert len(table.held) == 1
        await table.edit(job_id, policy={"max_lost": 1})
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        assert await rig.letters() == []
        (run, *_) = await rig.execute("SELECT state, lost_count FROM sexton.runs WHERE lost_count > 0")
        assert (run["state"], run["lost_count"]) == ("ready", 1)

    async def test_a_lost_run_with_a_requested_cancel_ends(self, rig: Rig) -> None:
        """A5, rule "losses have their own budget": cancelled, not tried again and not buried."""
        hand = await rig.worker()
        jobs = [await running(rig, hand), await running(rig, hand, delivery="at_most_once")]
        for job_id in jobs:
            assert (await rig.cancel(job_id)).asked_count == 1
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        assert rig.of(RunsLost) == []
        for job_id in jobs:
            assert await rig.status(job_id) == "cancelled"
            assert await rig.statuses(job_id) == ["lost"]
        assert await rig.letters() == []

    async def test_a_lost_run_with_time_left_before_its_deadline_is_tried_again(self, rig: Rig) -> None:
        """C3: 60 of 100 seconds have passed; the remaining 40 are still its own."""
        hand = await rig.worker()
        job_id = await running(rig, hand, deadline=100, timeout=0)
        rig.move(60)
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        assert await rig.letters() == []
        assert await rig.state(job_id) == "ready"

    async def test_a_lost_run_without_time_left_is_buried(self, rig: Rig) -> None:
        """C3: a total deadline over all attempts."""
        hand = await rig.worker()
        job_id = await running(rig, hand, deadline=100, timeout=0)
        rig.move(101)
        await rig.execute("DELETE FROM sexton.workers")
        await rig.sweeper().run_once()
        (letter,) = await rig.letters()
        assert (letter.job_id, letter.status) == (job_id, "lost")
        assert "deadline" in letter.reason


class TestTheOverrunning:
    async def test_a_run_past_timeout_and_grace_is_ended_while_its_worker_sends_heartbeats(self, rig: Rig) -> None:
        """C3, rule "the sweeper ends overdue runs": its thread hangs, or its worker forgot it. That spends an attempt."""
        hand, sweeper = await rig.worker(listens=False), rig.sweeper()
        job_id = await running(rig, hand, timeout=10, retry=Retry.immediate())
        rig.timers.stop()  # the worker's own
        await watch(rig, sweeper, 10 + 2 + 5 - 1, beat=hand)
        assert await rig.state(job_id) == "running"
        await watch(rig, sweeper, 1, beat=hand)
        run = await rig.run(job_id)
        assert run is not None
        assert (run["state"], run["attempt"], run["lost_count"]) == ("ready", 1, 0)
        assert await rig.statuses(job_id) == ["timed_out"]
        assert rig.of(Swept) == [Swept(0, 1, 0)]
        assert rig.of(WorkerLost) == []

    async def test_one_without_a_timeout_may_run_for_days(self, rig: Rig) -> None:
        """C4: jobs may take hours."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand, timeout=0)
        for _ in range(3):
            rig.move(86_400)
            await hand.beat()
            await sweeper.run_once()
        assert await rig.state(job_id) == "running"

    async def test_a_deadline_ends_it_sooner_than_its_timeout(self, rig: Rig) -> None:
        """C3."""
        hand, sweeper = await rig.worker(listens=False), rig.sweeper()
        job_id = await running(rig, hand, timeout=1000, deadline=10)
        rig.timers.stop()
        await watch(rig, sweeper, 17, beat=hand)
        assert await rig.statuses(job_id) == ["timed_out"]
        (letter,) = await rig.letters()
        assert "deadline" in letter.reason

    async def test_an_overrun_attempt_with_time_left_is_tried_again(self, rig: Rig) -> None:
        """C3: the time it was held is subtracted from its deadline once, not twice."""
        hand, sweeper = await rig.worker(listens=False), rig.sweeper()
        job_id = await running(rig, hand, timeout=10, deadline=30, retry=Retry.immediate())
        rig.timers.stop()
        await watch(rig, sweeper, 17, beat=hand)
        assert await rig.statuses(job_id) == ["timed_out"]
        assert await rig.letters() == []
        assert await rig.state(job_id) == "ready"


class TestTheMissed:
    @pytest.mark.parametrize("limit", ["start_within", "deadline"])
    @pytest.mark.parametrize("delay_s", [0, 5])
    async def test_a_run_that_did_not_start_in_time_is_buried_as_missed(self, rig: Rig, limit: str, delay_s: float) -> None:
        """C3: a latest start, whether it was ready or still waiting."""
        chosen: dict[str, Any] = {limit: 10}
        job_id = await rig.submit(delay=delay_s, **chosen)
        sweeper = rig.sweeper()
        rig.move(delay_s + 9)
        await sweeper.run_once()
        assert await rig.letters() == []
        rig.move(1)
        await sweeper.run_once()
        (letter,) = await rig.letters()
        assert (letter.job_id, letter.status, letter.permanent, letter.attempts) == (job_id, "missed", True, 0)
        (missed,) = await rig.executions(job_id)
        assert (missed.status, missed.started_at, missed.worker_id) == ("missed", None, None)
        assert rig.of(Swept) == [Swept(0, 0, 1)]

    async def test_a_run_that_started_in_time_has_no_latest_start_any_more(self, rig: Rig) -> None:
        """C3: a retry does not start late."""
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand, start_within=10, retry=Retry.after(60))
        hand.stage.handles[0].raises(ValueError("no luck"))
        await hand.report()
        rig.move(30)
        await sweeper.run_once()
        assert await rig.letters() == []
        assert await rig.state(job_id) == "waiting"

    async def test_a_running_run_is_not_missed(self, rig: Rig) -> None:
        hand, sweeper = await rig.worker(), rig.sweeper()
        job_id = await running(rig, hand, start_within=10, timeout=0)
        rig.move(60)
        await hand.beat()
        await sweeper.run_once()
        assert await rig.state(job_id) == "running"


async def test_an_idle_pass_is_one_statement(rig: Rig) -> None:
    """B10."""
    hand, between = await rig.worker(), Between(rig.database)
    await running(rig, hand)
    await rig.submit(delay=60, start_within=10, deadline=100)
    assert await rig.sweeper(between).run_once() == 1.0
    assert between.statements == ["survey"]
    assert rig.of(Swept) == []


class TestSuspects:
    """C18, rule "suspects apart"."""

    async def test_runs_that_were_lost_together_are_not_charged(self, rig: Rig) -> None:
        """After the first loss a run comes back at once; after the second it is in quarantine, in a group of half the size.
        More than a batch."""
        ids = await rig.submit_many(4)
        for state, company in (("ready", 0), ("quarantined", 2)):
            hand, sweeper = await rig.worker(), rig.sweeper()
            await hand.take()
            await sweeper.run_once()
            await watch(rig, sweeper, LEASE_S)
            for job_id in ids:
                run = await rig.run(job_id)
                assert run is not None
                assert (run["state"], run["company"], run["lost_count"]) == (state, company, 0)
        assert rig.of(Swept) == [Swept(4, 0, 0), Swept(4, 0, 0, 4)]
        reason = "its worker stopped sending heartbeats; the worker held 3 other runs"
        assert [one.reason for one in await rig.executions(ids[0])] == [reason, reason]

    async def test_the_group_size_is_known_though_the_runs_end_in_batches(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last run of the group is charged no more than the first."""
        monkeypatch.setattr("sexton.scheduler.sweeper.BATCH", 1)
        ids = await rig.submit_many(3)
        hand, sweeper = await rig.worker(), rig.sweeper()
        await hand.take()
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S)
        assert [(run["state"], run["lost_count"]) for job_id in ids if (run := await rig.run(job_id))] == [("ready", 0)] * 3

    @pytest.mark.parametrize("poison_count", [1, 2])
    async def test_the_culprits_are_found_in_a_bounded_number_of_deaths(self, rig: Rig, poison_count: int) -> None:
        """Two ordinary workers; then at most log2(held) - 1 groups and `max_lost` workers for each. No harmless run is
        buried."""
        held = 32
        ids = await rig.submit_many(held)
        poison = set(ids[5 : 5 + poison_count])
        for _ in range(2):
            hand = await rig.worker(worker_concurrency=held)
            await hand.take()
            await rig.execute("DELETE FROM sexton.workers")
            await rig.sweeper().run_once()
        deaths = 0
        while await rig.states():
            worker_id, jobs = await take_suspects(rig)
            assert jobs, "they are claimed, group by group"
            if poison.isdisjoint(jobs):
                await self._succeed(rig, worker_id)
                continue
            deaths += 1
            async with rig.database.connection() as connection:
                reason = "its process was killed by signal 11"
                assert await workers.declare_ended(connection, worker_id, reason=reason, now=rig.clock.database_now())
            await rig.sweeper().run_once()
        letters = await rig.letters()
        assert {letter.job_id for letter in letters} == poison
        found = "it took down 3 workers; the limit is 3: its process was killed by signal 11; the worker held no other run"
        assert {letter.reason for letter in letters} == {found}
        assert deaths <= poison_count * (4 + 3)
        assert [await rig.status(job_id) for job_id in ids if job_id not in poison] == ["completed"] * (held - poison_count)

    async def _succeed(self, rig: Rig, worker_id: UUID) -> None:
        async with rig.database.connection() as connection:
            rows = await connection.fetch("SELECT id, token FROM sexton.runs WHERE worker_id = $1", worker_id)
            reports = [
                Report(row["id"], row["token"], "end", "succeeded", worker_id, "completed", started_s=0.0, took_s=1.0)
                for row in rows
            ]
            await runs.finish(connection, reports, now=rig.clock.database_now())
            await workers.leave(connection, worker_id)

    async def test_a_child_that_dies_with_its_parent_proves_little(self, rig: Rig) -> None:
        """The parent may have executed the poison; but a run cannot survive this way for ever."""
        job_id = await rig.submit()
        for _ in range(2):
            await (await rig.worker()).take()
            await rig.execute("DELETE FROM sexton.workers")
            await rig.sweeper().run_once()
        for lost_count in range(3, 10):
            run = await rig.run(job_id)
            assert run is not None
            assert run["lost_count"] == lost_count - 1
            parent, sweeper = await rig.worker(), rig.sweeper()
            await take_suspects(rig, parent_id=parent.worker.worker_id)
            await sweeper.run_once()
            await watch(rig, sweeper, LEASE_S)
        (letter,) = await rig.letters()
        assert letter.reason.endswith("the worker that had started it was lost as well")

    async def test_a_child_that_falls_silent_beside_its_live_parent_is_charged_to_the_run(self, rig: Rig) -> None:
        """A handler that blocks the whole interpreter: no process ends, and the parent sends heartbeats."""
        job_id = await rig.submit()
        for _ in range(2):
            await (await rig.worker()).take()
            await rig.execute("DELETE FROM sexton.workers")
            await rig.sweeper().run_once()
        parent, sweeper = await rig.worker(), rig.sweeper()
        await take_suspects(rig, parent_id=parent.worker.worker_id)
        await sweeper.run_once()
        await watch(rig, sweeper, LEASE_S, beat=parent)
        assert [letter.job_id for letter in await rig.letters()] == [job_id]
