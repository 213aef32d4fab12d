"""The parent of workers in quarantine, with children that the test controls; and such a worker itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from sexton.domain.outcome import Lost
from sexton.domain.run import report
from sexton.errors import DatabaseUnavailable
from sexton.settings import Settings
from sexton.store.fleet import workers as fleet
from sexton.store.work import runs
from sexton.telemetry.events import DeclaredLost, QuarantineLost, QuarantineStarted
from sexton.worker.quarantine.child import HANDED_BACK, LEAVE_S, Confined, Idleness, _Rounds
from sexton.worker.quarantine.parent import (
    CHECK_S,
    DELAY_S_MAX,
    LOOK_S,
    REST_S,
    TURN_S,
    ChildProcess,
    Command,
    Ended,
    Quarantine,
)
from sexton.worker.worker import Worker
from tests.rig import LEASE_S, LONG_S, Between, HandWorker, Rig, Stage

PARENT = UUID(int=7)


class FakeChild:
    pid = 4711

    def __init__(self) -> None:
        self.worker_id: UUID | None = uuid4()
        self.is_over = self.is_killed = self.is_asked = self.is_closed = False
        self.rounds = 1
        self.ended: list[Ended] = []

    def dies(self, exit_code: int = 3) -> None:
        assert self.worker_id is not None
        self.ended.append(Ended(self.worker_id, 4712, exit_code))
        self.worker_id = None

    def look(self) -> list[Ended]:
        ended, self.ended = self.ended, []
        return ended

    def begin_next(self) -> None:
        self.rounds += 1
        self.worker_id = uuid4()

    def ask_to_stop(self) -> None:
        self.is_asked = True

    def kill(self) -> None:
        self.is_killed = self.is_over = True

    def close(self) -> None:
        self.is_closed = True


class Parent:
    def __init__(self, rig: Rig, database: Between | None = None, worker_id: UUID = PARENT) -> None:
        self.rig = rig
        self.children: list[FakeChild] = []
        self.quarantine = Quarantine(
            database or rig.database,
            self._start,
            worker_id=lambda: worker_id,
            queues=["default"],
            tasks=["a"],
            clock=rig.clock,
            emit=rig.heard,
        )

    def _start(self) -> FakeChild:
        self.children.append(FakeChild())
        return self.children[-1]

    async def passes(self, span_s: float = 0.0) -> float:
        self.rig.move(span_s)
        return await self.quarantine.run_once()

    async def with_child(self) -> FakeChild:
        self.quarantine.hear_of_suspects()
        await self.passes(0.5)
        return self.children[-1]


async def suspects(rig: Rig, count: int = 2, company: int = 1) -> list[UUID]:
    """Runs that were lost twice together with others."""
    ids = await rig.submit_many(count, timeout=0)
    for _ in range(2):
        hand = await rig.worker(worker_concurrency=count)
        await hand.take()
        reports = [report(each.claimed.lease, Lost("gone", 2 * company), rig.rng) for each in hand.held]
        async with rig.database.connection() as connection:
            await runs.finish(connection, reports, now=rig.clock.database_now())
    return ids


async def confined(rig: Rig, **settings: Any) -> HandWorker:
    """A worker in quarantine, stepped by the test."""
    stage = Stage()
    hand = await rig.worker()
    worker = Worker(
        rig.database,
        hand.worker._registry,
        Settings(**{"worker_concurrency": 4, "lease_s": 6.0, **settings}),
        timers=rig.timers,
        clock=rig.clock,
        emit=rig.heard,
        rng=rig.rng,
        poll_s=2.0,
        handlers={"a": stage},
        confined=Confined(uuid4(), hand.worker.worker_id),
    )
    hand = HandWorker(rig, worker, worker.make_heartbeat(rig.database, lambda call: call()), stage)
    await hand.beat()
    return hand


class TestTheParent:
    async def test_a_heartbeat_that_sees_suspects_notifies_it(self, rig: Rig) -> None:
        hand = await rig.worker()
        heard: list[bool] = []
        hand.worker.on_suspects = lambda: heard.append(True)
        await hand.beat()
        assert heard == []
        await suspects(rig)
        await hand.beat()
        assert heard == [True]

    async def test_it_starts_one_child_while_suspects_wait(self, rig: Rig) -> None:
        """Rule "suspects apart"."""
        parent = Parent(rig)
        assert await parent.passes() == REST_S
        await suspects(rig)
        parent.quarantine.hear_of_suspects()
        await parent.passes()
        assert await parent.passes() == LOOK_S
        parent.quarantine.hear_of_suspects()
        await parent.passes()
        assert len(parent.children) == 1
        assert rig.of(QuarantineStarted) == [QuarantineStarted(4711)]

    async def test_it_starts_no_child_if_the_suspects_are_gone_by_then(self, rig: Rig) -> None:
        parent = Parent(rig)
        parent.quarantine.hear_of_suspects()
        assert await parent.passes() == REST_S
        assert parent.children == []

    async def test_a_fleet_starts_one_child_for_one_suspect(self, rig: Rig) -> None:
        """Each imports the app and opens connections."""
        await suspects(rig, 1)
        rig.move(2 * LEASE_S)  # the workers that were lost
        hands = [await rig.worker() for _ in range(6)]
        parents = [Parent(rig, worker_id=hand.worker.worker_id) for hand in hands]

        async def look_on(span_s: float) -> None:
            for _ in range(round(span_s / 0.5)):
                rig.move(0.5)
                for hand, parent in zip(hands, parents, strict=True):
                    await hand.beat()
                    parent.quarantine.hear_of_suspects()
                    await parent.passes()

        await look_on(TURN_S - 0.5)
        assert sum(len(parent.children) for parent in parents) == 1, "one begins at once"
        await look_on(TURN_S)
        assert sum(len(parent.children) for parent in parents) == 2, "the next one, if the first child did not join in time"
        hand = await confined(rig)
        for _ in range(5):
            await hand.beat()
            await look_on(TURN_S)
        assert sum(len(parent.children) for parent in parents) == 2

    async def test_many_suspects_are_executed_by_several_workers(self, rig: Rig) -> None:
        """Four suspects in groups of two: two children at once, and no third one."""
        await suspects(rig, 4, company=2)
        rig.move(2 * LEASE_S)
        hands = [await rig.worker() for _ in range(3)]
        parents = [Parent(rig, worker_id=hand.worker.worker_id) for hand in hands]
        for parent in parents:
            parent.quarantine.hear_of_suspects()
            await parent.passes()
        assert sorted(len(parent.children) for parent in parents) == [0, 1, 1]

    async def test_a_child_that_is_busy_is_no_child_for_the_next_suspect(self, rig: Rig) -> None:
        """It may execute its suspect for hours."""
        await suspects(rig, 2)
        hand, first = await confined(rig), Parent(rig)
        first.quarantine.hear_of_suspects()
        await hand.take()
        await first.passes()
        assert len(first.children) == 1

    async def test_a_child_that_died_is_declared_lost_at_once_and_the_next_begins(self, rig: Rig) -> None:
        """Not after a lease: a run that takes down many workers is found soon."""
        (first, _) = await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        hand = await confined(rig)
        await hand.take()
        (held,) = hand.held
        child.worker_id = hand.worker.worker_id
        child.dies(-11)
        await parent.passes()
        assert rig.of(QuarantineLost) == [
            QuarantineLost(hand.worker.worker_id, 4712, "was killed by SIGSEGV", (held.claimed.run_id,))
        ]
        assert child.rounds == 2
        await rig.sweeper().run_once()
        run = await rig.run(first)
        assert run is not None
        assert (run["state"], run["lost_count"], run["company"]) == ("quarantined", 1, 1)
        assert "SIGSEGV" in ((await rig.last(first)).reason or "")

    async def test_one_that_the_kernel_killed_may_be_innocent(self, rig: Rig) -> None:
        """When memory runs out, the kernel kills a child in quarantine first, whichever process took the memory. So the loss
        counts as one together with the parent, and the next one begins later."""
        (first, _) = await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        for rounds in (1, 2, 3):
            hand = await confined(rig)
            await hand.take()
            child.worker_id = hand.worker.worker_id
            child.dies(-9)
            await parent.passes()
            assert child.rounds == rounds, "it waits"
            await rig.sweeper().run_once()
            for _ in range(20):
                await parent.passes(LOOK_S)
            assert child.rounds == rounds + 1
        run = await rig.run(first)
        assert run is not None
        assert (run["state"], run["lost_count"]) == ("quarantined", 3), "the limit of 3 does not bury it, but 9 would"
        assert "SIGKILL" in ((await rig.last(first)).reason or "")

    async def test_children_that_die_without_a_suspect_are_restarted_with_backoff(self, rig: Rig) -> None:
        """An app that cannot start must not be started all the time."""
        await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        waits = []
        for number in range(2, 9):
            child.dies(1)
            waited = 0.0
            await parent.passes()
            while child.rounds < number:
                await parent.passes(LOOK_S)
                waited += LOOK_S
            waits.append(waited)
        assert waits[0] < 0.5 < waits[2] < waits[4]
        assert waits[-1] == pytest.approx(DELAY_S_MAX, abs=2 * LOOK_S)

    async def test_a_child_that_has_ended_is_forgotten(self, rig: Rig) -> None:
        await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        child.dies(0)
        child.is_over = True
        await parent.passes()
        assert child.is_closed
        assert rig.of(QuarantineLost) == []
        assert await parent.passes() == REST_S

    async def test_a_child_that_does_not_run_is_killed(self, rig: Rig) -> None:
        """A sweeper has declared it lost; it will not end by itself."""
        await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        hand = await confined(rig)
        child.worker_id = hand.worker.worker_id
        await parent.passes(CHECK_S)
        assert not child.is_killed
        await rig.execute("UPDATE sexton.workers SET lost_at = now() WHERE id = $1", child.worker_id)
        await parent.passes(CHECK_S)
        assert child.is_killed, "also if no other suspect waits"

    async def test_the_next_begins_at_once_after_one_that_has_named_its_suspect(self, rig: Rig) -> None:
        """It has given back what it held, so it ends with nothing. That is no reason to wait."""
        await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        for number in range(2, 9):
            child.dies(HANDED_BACK)
            await parent.passes()
            assert child.rounds == number

    async def test_a_death_during_an_outage_of_the_database_is_not_forgotten(self, rig: Rig) -> None:
        between = Between(rig.database)
        await suspects(rig)
        parent = Parent(rig, between)
        child = await parent.with_child()
        hand = await confined(rig)
        child.worker_id = hand.worker.worker_id
        child.dies()
        between.away = True
        with pytest.raises(DatabaseUnavailable):
            await parent.passes()
        between.away = False
        await parent.passes()
        assert [event.worker_id for event in rig.of(QuarantineLost)] == [hand.worker.worker_id]

    async def test_a_worker_that_drains_stops_its_child(self, rig: Rig) -> None:
        await suspects(rig)
        parent = Parent(rig)
        child = await parent.with_child()
        parent.quarantine.ask_to_stop()
        assert child.is_asked
        await parent.quarantine.close(0.0)
        assert child.is_killed
        parent.quarantine.hear_of_suspects()
        await parent.passes()
        assert len(parent.children) == 1, "and starts no other"


class TestAWorkerInQuarantine:
    async def test_it_executes_only_suspects_in_groups_of_their_size(self, rig: Rig) -> None:
        ids = await suspects(rig, 3, company=2)
        ordinary = await rig.submit(timeout=0)
        hand = await confined(rig)
        await hand.take()
        assert len(hand.stage.handles) == 2
        await hand.take()
        assert len(hand.stage.handles) == 2
        for handle in hand.stage.running:
            handle.returns()
        await hand.report()
        await hand.take()
        assert len(hand.stage.handles) == 3
        hand.stage.running[0].returns()
        await hand.report()
        assert [await rig.status(job_id) for job_id in ids] == ["completed"] * 3
        assert await rig.state(ordinary) == "ready"

    async def test_it_registers_as_a_worker_in_quarantine(self, rig: Rig) -> None:
        hand = await confined(rig)
        async with rig.database.connection() as connection:
            enlisted = {worker.id: worker for worker in await fleet.workers(connection)}
        assert enlisted[hand.worker.worker_id].quarantine
        assert sum(worker.quarantine for worker in enlisted.values()) == 1

    async def test_declared_lost_it_ends_instead_of_joining_again(self, rig: Rig) -> None:
        """Its parent has only this id."""
        await suspects(rig)
        hand = await confined(rig)
        own_id = hand.worker.worker_id
        await rig.execute("UPDATE sexton.workers SET lost_at = now() WHERE id = $1", own_id)
        await hand.beat()
        assert hand.worker.exhausted.is_set()
        assert hand.worker.worker_id == own_id
        assert len(rig.of(DeclaredLost)) == 1

    async def test_it_ends_after_a_while_without_suspects(self, rig: Rig) -> None:
        await suspects(rig)
        hand = await confined(rig)
        left: list[bool] = []
        idleness = Idleness(hand.worker.held_runs, lambda: left.append(True), clock=rig.clock)
        await hand.take()
        rig.move(2 * LEAVE_S)
        await idleness.run_once()
        assert left == []
        hand.stage.running[0].returns()
        await hand.report()
        rig.move(LEAVE_S - 1)
        await idleness.run_once()
        assert left == []
        rig.move(1)
        await idleness.run_once()
        assert left == [True]


CHILD = """
import os, sys, threading, time
from sexton.worker.quarantine.child import Place, begin, confine
place = Place.of(sys.argv[sys.argv.index("--quarantine") + 1])
begin(place)
if "threads" in sys.argv:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
confined = confine(place)
assert confined.parent_id.int == 7
assert open("/proc/self/oom_score_adj").read() == "1000\\n"
if "stay" in sys.argv:
    time.sleep(60)
os._exit(5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
class TestTheChild:
    async def test_it_forks_one_worker_after_the_other(self) -> None:
        child = start()
        first = await ended(child)
        assert first.exit_code == 5
        assert not child.is_over
        child.begin_next()
        second = await ended(child)
        assert second.worker_id != first.worker_id
        assert second.pid != first.pid
        child.close()  # nothing to do: the child has already ended
        await until(lambda: child.is_over)

    async def test_with_threads_it_does_not_fork(self) -> None:
        """A lock that another thread holds would stay locked for ever."""
        child = start("threads")
        only = await ended(child)
        assert (only.pid, only.exit_code) == (child.pid, 5)
        await until(lambda: child.is_over)
        child.close()

    async def test_a_request_to_stop_stops_its_worker(self) -> None:
        child = start("stay")
        await until(lambda: child.look() == [] and child.worker_id is not None)
        child.ask_to_stop()
        assert (await ended(child)).exit_code in (-15, 0)
        await until(lambda: child.is_over)
        child.close()

    def test_a_request_to_stop_that_comes_just_after_its_worker_has_ended_is_no_error(self) -> None:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        rounds = _Rounds.__new__(_Rounds)  # without the signal handlers
        rounds._worker_pid = ended.pid
        rounds._ask_to_stop()
        assert rounds._is_asked

    async def test_kill_ends_its_worker_too(self) -> None:
        child = start("stay")
        await until(lambda: child.look() == [] and child.worker_id is not None)
        worker_id = child.worker_id
        child.kill()
        assert (await ended(child)).worker_id == worker_id
        child.close()

    async def test_it_ends_with_its_parent(self) -> None:
        """Its lifeline closes when the parent ends, however that happens."""
        child = start("stay")
        await until(lambda: child.look() == [] and child.worker_id is not None)
        os.close(child._lifeline)
        await until(lambda: child.is_over)
        assert child._process.returncode == -9
        child._lifeline = os.open(os.devnull, os.O_RDONLY)
        child.close()


def start(*words: str) -> ChildProcess:
    return ChildProcess(Command([sys.executable, "-c", CHILD, *words]), PARENT)


async def ended(child: ChildProcess) -> Ended:
    found: list[Ended] = []

    def look() -> bool:
        found.extend(child.look())
        return bool(found)

    await until(look)
    (only,) = found
    return only


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(3 * LONG_S):
        while not holds():  # noqa: ASYNC110  (of another process)
            await asyncio.sleep(0.01)
