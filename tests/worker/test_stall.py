"""A handler that blocks the event loop: the heartbeat's thread names it, only that run is charged, the others are handed
back."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sexton.clock import SystemClock
from sexton.errors import Contention
from sexton.handlers.context import Context
from sexton.registry import Definition, Registry
from sexton.telemetry.events import Event, ExitForced, LoopStalled, StallFound, StallHandedBack
from sexton.worker.execution import Phase
from sexton.worker.heartbeat import LastResort
from sexton.worker.held_runs import HeldRuns
from sexton.worker.stall import interpreter_lock, stack_dump, stacks
from sexton.worker.stall.interpreter_lock import Standstill
from sexton.worker.stall.loop_pulse import Pulse
from sexton.worker.stall.stack_dump import StackDump
from tests.rig import LEASE_S, LONG_S, Between, HandWorker, Rig, settle

STALL_S = 4.0
ID = UUID(int=1)
NAME = Path(__file__).name


async def innocent(_ctx: Context) -> None:
    await asyncio.Event().wait()


async def guilty(_ctx: Context) -> None:
    await asyncio.Event().wait()


async def stalled(
    rig: Rig, *, innocents: int = 3, database: Between | None = None, last_resort: LastResort | None = None, **options: Any
) -> tuple[HandWorker, list[Any]]:
    """A worker with one run that blocks the loop and some harmless ones. The first id is that of the blocking run."""
    hand = await rig.worker(
        innocent, guilty, tasks=(), database=database, last_resort=last_resort, worker_concurrency=innocents + 1
    )
    ids = [await rig.submit("guilty", timeout=0, **options), *await rig.submit_many(innocents, "innocent", timeout=0)]
    await hand.take()
    await settle()
    return hand, ids


def block(hand: HandWorker, task: Any) -> None:
    """From now on the loop seems to execute this task, and nothing else."""
    hand.worker.pulse.current_task = lambda: task  # type: ignore[method-assign]


def task_of(hand: HandWorker, name: str) -> Any:
    execution = next(each for each in hand.held if each.claimed.task == name)
    return execution._handle.done  # type: ignore[union-attr]


async def is_lost(rig: Rig) -> None:
    """A sweeper declares the worker lost, and takes back what it still has."""
    sweeper = rig.sweeper()
    for _ in range(2 * round(LEASE_S)):
        rig.move(1.0)
        await sweeper.run_once()


async def charged(rig: Rig, job_id: UUID) -> int:
    run = await rig.run(job_id)
    assert run is not None
    return int(run["lost_count"])


async def look_on(rig: Rig, hand: HandWorker, span_s: float) -> None:
    """As the heartbeat's thread does: it sends heartbeats until it knows the run, then it stops."""
    for _ in range(round(span_s / 0.5)):
        rig.move(0.5)
        hand.heartbeat.watch()
        await hand.heartbeat.run_once()


class TestABlockedLoop:
    async def test_only_the_run_on_the_stack_is_charged(self, rig: Rig) -> None:
        """Rule "suspects apart"."""
        hand, (culprit, *others) = await stalled(rig)
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        run = await rig.run(culprit)
        assert run is not None
        assert (run["state"], run["lost_count"], run["attempt"]) == ("ready", 1, 0)
        for job_id in others:
            run = await rig.run(job_id)
            assert run is not None
            assert (run["state"], run["lost_count"], run["attempt"]) == ("ready", 0, 0)
            assert await rig.statuses(job_id) == ["released"]
        (event,) = rig.of(LoopStalled)
        assert event.task == "guilty"
        assert event.run_id == (await rig.last(culprit)).run_id
        assert rig.of(StallHandedBack) == [StallHandedBack(hand.worker.worker_id, event.run_id, 4)]
        lost, released = await rig.last(culprit), await rig.last(others[0])
        assert "blocked the event loop of its worker for 4.5 s" in (lost.reason or "")
        assert "task guilty" in (released.reason or "")
        assert str(event.run_id) in (released.reason or "")

    async def test_it_happens_once_and_the_handlers_are_stopped(self, rig: Rig) -> None:
        hand, _ = await stalled(rig)
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        await look_on(rig, hand, 2.0)
        assert len(rig.of(LoopStalled)) == len(rig.of(StallHandedBack)) == 1
        await settle()
        assert hand.held == [], "their leases are gone"

    async def test_a_task_that_the_handler_started_counts_as_the_handler(self, rig: Rig) -> None:
        """From Python 3.12 on, which shows the context of a task."""
        _, (culprit, *_) = await stalled(rig)
        seen: list[contextvars.Context] = []

        class Subtask:
            def get_context(self) -> contextvars.Context:
                return seen[0]

        async def spy(_ctx: Context) -> None:
            seen.append(contextvars.copy_context())
            await asyncio.Event().wait()

        spying = await rig.worker(spy, tasks=())
        job_id = await rig.submit("spy", timeout=0)
        await spying.take()
        await settle()
        block(spying, Subtask())
        await look_on(rig, spying, STALL_S + 0.5)
        assert [event.task for event in rig.of(LoopStalled)] == ["spy"]
        assert await rig.statuses(job_id) == ["lost"]
        assert await rig.state(culprit) == "running"

    async def test_without_a_single_handler_on_the_stack_no_run_is_charged(self, rig: Rig) -> None:
        """Much work for the loop is allowed: the worker only sends no heartbeats."""
        hand, ids = await stalled(rig)
        tasks = [task_of(hand, "guilty"), task_of(hand, "innocent")]
        for turn in range(12):
            block(hand, tasks[turn % 2])
            await look_on(rig, hand, 0.5)
        (event,) = rig.of(LoopStalled)
        assert event.task is None
        assert {await rig.state(job_id) for job_id in ids} == {"running"}

    async def test_after_a_pause_of_the_process_no_run_is_charged(self, rig: Rig) -> None:
        """SIGSTOP, a suspended machine: the thread of the heartbeat did not run either."""
        hand, ids = await stalled(rig)
        block(hand, task_of(hand, "guilty"))
        for span_s in (0.6, 3600):
            rig.move(span_s)
            hand.heartbeat.watch()
        await hand.heartbeat.run_once()
        assert [event.task for event in rig.of(LoopStalled)] == [None]
        assert {await rig.state(job_id) for job_id in ids} == {"running"}

    async def test_an_at_most_once_run_is_not_handed_back(self, rig: Rig) -> None:
        """That would bury it, though the loop may be back in a moment."""
        hand, (culprit, *others) = await stalled(rig)
        once = await rig.submit("innocent", timeout=0, delivery="at_most_once")
        hand.intake.slots.limit += 1
        await hand.take()
        await settle()
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        assert await rig.state(once) == "running"
        assert await rig.state(culprit) == "ready"
        assert {await rig.state(job_id) for job_id in others} == {"ready"}

    async def test_a_claim_whose_reply_the_loop_could_not_read_is_handed_back_too(self, rig: Rig) -> None:
        """The reply waits in the socket. When the loop reads it, other workers already have these runs."""
        between = Between(rig.database)
        hand, _ = await stalled(rig, database=between)
        late = await rig.submit("innocent", timeout=0)
        hand.intake.slots.limit += 1

        async def blocked() -> None:
            block(hand, task_of(hand, "guilty"))
            await look_on(rig, hand, STALL_S + 0.5)

        between.after("claim", blocked)
        await hand.take()
        assert await rig.state(late) == "ready"
        assert await rig.statuses(late) == ["released"]
        assert [each for each in hand.held if each.claimed.lease.job_id == late] == []
        await hand.beat()
        await hand.take()
        assert [each.claimed.lease.token for each in hand.held if each.claimed.lease.job_id == late] == [2]

    async def test_a_lease_that_was_given_back_is_forgotten_when_no_reply_can_bring_it(self) -> None:
        held_runs, fence = HeldRuns(), (ID, 1)
        with held_runs.claiming():
            with suppress(ConnectionError), held_runs.claiming():
                held_runs.returned.add(fence)
                raise ConnectionError
            assert held_runs.returned == {fence}, "the other claim may bring it"
        assert held_runs.returned == set()

    async def test_a_run_that_has_already_ended_is_left_to_its_report(self, rig: Rig) -> None:
        hand, (_, ended, *_) = await stalled(rig)
        execution = next(each for each in hand.held if each.claimed.lease.job_id == ended)
        execution.phase = Phase.REPORTING
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        assert await rig.state(ended) == "running"

    async def test_a_run_that_had_ended_before_is_not_charged_if_the_worker_is_lost(self, rig: Rig) -> None:
        """Rule "suspects apart": its report waits for the loop. The others are handed back, but it was not alone."""
        hand, (culprit, ended, *_) = await stalled(rig)
        execution = next(each for each in hand.held if each.claimed.lease.job_id == ended)
        execution.phase = Phase.REPORTING
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        await is_lost(rig)
        assert (await charged(rig, culprit), await charged(rig, ended)) == (1, 0)
        assert "the worker held 3 other runs" in ((await rig.last(ended)).reason or "")

    async def test_nor_is_one_that_its_own_transaction_is_about_to_end(self, rig: Rig) -> None:
        hand, (culprit, locked, *_) = await stalled(rig)
        execution = next(each for each in hand.held if each.claimed.lease.job_id == locked)
        execution.ending = True
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        await is_lost(rig)
        assert (await charged(rig, culprit), await charged(rig, locked)) == (1, 0)

    async def test_a_heartbeat_ends_the_count_of_a_hand_back(self, rig: Rig) -> None:
        """What the worker holds later, it may hold alone."""
        hand, (_, ended, *_) = await stalled(rig)
        execution = next(each for each in hand.held if each.claimed.lease.job_id == ended)
        execution.phase = Phase.REPORTING
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        await hand.beat()
        await is_lost(rig)
        assert await charged(rig, ended) == 1

    async def test_a_locked_run_is_handed_back_when_the_lock_is_gone(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand, ids = await stalled(rig, database=between)
        left = 3

        async def locked() -> None:
            nonlocal left
            left -= 1
            if left:
                between.before("finish", locked)
            raise Contention("canceling statement due to lock timeout")

        between.before("finish", locked)
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        assert "running" in [await rig.state(job_id) for job_id in ids]
        await look_on(rig, hand, 0.5)
        assert [await rig.state(job_id) for job_id in ids] == ["ready"] * 4
        assert sum(event.count for event in rig.of(StallHandedBack)) == 4

    async def test_a_locked_run_delays_no_other(self, rig: Rig) -> None:
        """The report of all four times out, then that of the first two, then that of the first."""
        between = Between(rig.database)
        hand, ids = await stalled(rig, database=between)
        left = 3

        async def locked() -> None:
            nonlocal left
            left -= 1
            if left:
                between.before("finish", locked)
            raise Contention("canceling statement due to lock timeout")

        between.before("finish", locked)
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + 0.5)
        assert sorted([await rig.state(job_id) or "" for job_id in ids]) == ["ready", "ready", "ready", "running"]

    async def test_while_the_database_is_away_it_tries_again(self, rig: Rig) -> None:
        between = Between(rig.database)
        hand, (culprit, *_) = await stalled(rig, database=between)
        block(hand, task_of(hand, "guilty"))
        between.refuse("finish")
        with pytest.raises(Exception, match="gone"):
            await look_on(rig, hand, STALL_S + 0.5)
        assert await rig.state(culprit) == "running"
        await look_on(rig, hand, 0.5)
        assert await rig.state(culprit) == "ready"
        assert len(rig.of(LoopStalled)) == 1


class TestABlockThatDoesNotEnd:
    async def test_in_quarantine_the_process_ends_when_its_runs_are_handed_back(self, rig: Rig) -> None:
        """Rule "suspects apart": no innocent run is left in it, and its parent starts the next one."""
        ends: list[ExitForced] = []
        hand, (culprit, *others) = await stalled(rig, last_resort=LastResort(ends.append, 0.0, is_confined=True))
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S)
        assert ends == [], "not before"
        await look_on(rig, hand, 1.0)
        assert await rig.statuses(culprit) == ["lost"]
        assert [await rig.statuses(job_id) for job_id in others] == [["released"]] * 3
        assert "in task guilty, run " in (ends[0].stuck_at or "")

    async def test_an_ordinary_worker_gives_it_the_time_of_its_lease_and_of_a_stop(self, rig: Rig) -> None:
        """Rule "leave in bounded time": the supervisor starts a new worker only if this one has ended."""
        ends: list[ExitForced] = []
        hand, _ = await stalled(rig, last_resort=LastResort(ends.append, 50.0))
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, STALL_S + LEASE_S + 49.0)
        assert ends == []
        await look_on(rig, hand, 2.0)
        assert ends[0].limit_s == STALL_S + LEASE_S + 50.0
        assert "in task guilty, run " in (ends[0].stuck_at or "")

    async def test_also_if_no_handler_can_be_named(self, rig: Rig) -> None:
        """A callback that blocks the loop is no task."""
        ends: list[ExitForced] = []
        hand, _ = await stalled(rig, last_resort=LastResort(ends.append, 50.0))
        block(hand, None)
        await look_on(rig, hand, STALL_S + LEASE_S + 51.0)
        assert len(rig.of(LoopStalled)) == 1
        assert ends != []

    async def test_a_loop_that_is_back_or_a_pause_of_the_process_ends_nothing(self, rig: Rig) -> None:
        ends: list[ExitForced] = []
        hand, _ = await stalled(rig, last_resort=LastResort(ends.append, 50.0))
        block(hand, task_of(hand, "guilty"))
        await look_on(rig, hand, 40.0)
        hand.worker.pulse.felt_at = rig.clock.monotonic()
        await look_on(rig, hand, 40.0)
        rig.move(3600)
        await look_on(rig, hand, 1.0)
        assert ends == []


HELD = """Timeout (0:00:01)!
Thread 0x00007f0000000002 (most recent call first):
  File "/srv/shop/tasks.py", line 31 in wait
  File "{sexton}/handlers/python/function.py", line 120 in work
  File "{sexton}/handlers/python/threads.py", line 40 in _serve
  File "{lib}/threading.py", line 982 in run

Thread 0x00007f0000000003 (most recent call first):
  File "{sexton}/handlers/python/threads.py", line 38 in _serve

Thread 0x00007f0000000001 (most recent call first):
  File "{lib}/re/__init__.py", line 166 in match
  File "/srv/shop/words.py", line 7 in split
  File "/srv/shop/tasks.py", line 12 in crunch
  File "{sexton}/handlers/python/function.py", line 60 in _guarded
  File "{lib}/asyncio/runners.py", line 190 in run
  File "{sexton}/cli/composition.py", line 229 in serve
  File "/srv/venv/bin/sexton", line 8 in <module>
""".format(sexton=stacks._SEXTON, lib=stacks._LIBRARIES[0])
LOOP, PLAIN = 0x7F0000000001, 0x7F0000000002


class TestStacks:
    def test_a_dump_has_the_frames_of_each_thread(self) -> None:
        dumped = stacks.of_dump(HELD)
        assert list(dumped) == [PLAIN, 0x7F0000000003, LOOP]
        assert dumped[PLAIN][0] == stacks.Frame("/srv/shop/tasks.py", 31, "wait")

    def test_the_place_is_the_innermost_line_of_the_app_not_of_a_library(self) -> None:
        assert str(stacks.place(stacks.of_handler(stacks.of_dump(HELD)[LOOP]))) == "/srv/shop/words.py:7 in split"

    def test_an_app_that_is_installed_as_a_library_is_named_by_its_handler(self) -> None:
        lib = stacks._LIBRARIES[0]
        frames = [stacks.Frame(f"{lib}/socket.py", 5, "recv"), stacks.Frame(f"{lib}/shop/tasks.py", 12, "crunch")]
        assert stacks.place(frames) == frames[1]
        assert stacks.place([]) is None

    def test_a_handler_on_the_loop_is_the_only_one_that_can_block_it(self) -> None:
        (frames,) = stacks.busy(stacks.of_dump(HELD), LOOP)
        assert frames[-1].function == "crunch"

    def test_otherwise_any_busy_handler_may_be_the_one(self) -> None:
        """Also if the thread of the loop is unknown, as in the dump of another process."""
        assert [frames[-1].function for frames in stacks.busy(stacks.of_dump(HELD), None)] == ["wait", "crunch"]

    def test_the_stack_of_a_thread_that_runs_now(self) -> None:
        begun, release = threading.Event(), threading.Event()

        def sits() -> None:
            begun.set()
            release.wait(LONG_S)

        thread = threading.Thread(target=sits)
        thread.start()
        begun.wait(LONG_S)
        frame = stacks.place(stacks.of_handler(stacks.of_thread(thread.ident or 0)))
        release.set()
        thread.join()
        assert frame is not None
        assert (Path(frame.file).name, frame.function) == (NAME, "sits")


@pytest.fixture
def dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"sexton-{os.getuid()}"


def shop() -> Registry:
    """One task, whose function is in a file of that name."""
    registry, scope = Registry(), dict[str, Any]()
    exec(compile("async def crunch(ctx): ...", "/srv/shop/tasks.py", "exec"), scope)
    registry.add(Definition("shop.crunch", scope["crunch"], "shop.tasks", "crunch"))
    return registry


def feel(dump: StackDump, registry: Registry, elapsed_s: float, *, is_named: bool = False) -> list[Event]:
    """The log when the loop is back after this time."""
    heard: list[Event] = []
    pulse = Pulse(SystemClock())
    pulse.thread_id, pulse.is_named = LOOP, is_named
    one = Standstill(dump, pulse, HeldRuns(), registry, worker_id=lambda: ID, loop_stall_s=STALL_S, emit=heard.append)
    one.felt(elapsed_s)
    return heard


class TestAStandstill:
    def test_when_the_loop_is_back_it_names_the_task_and_the_line(self, dumps: Path) -> None:
        dump = opened()
        (dumps / f"app-{os.getpid()}.stack").write_text(HELD)
        assert feel(dump, shop(), 5.0) == [LoopStalled(ID, 5.0, "shop.crunch", None, "/srv/shop/words.py:7 in split")]
        assert feel(dump, shop(), 5.0) == [], "it is told once"
        dump.close()
        assert list(dumps.iterdir()) == []

    def test_not_if_it_was_short_or_is_already_named(self, dumps: Path) -> None:
        dump = opened()
        (dumps / f"app-{os.getpid()}.stack").write_text(HELD)
        assert feel(dump, shop(), 3.9) == []
        (dumps / f"app-{os.getpid()}.stack").write_text(HELD)
        assert feel(dump, shop(), 5.0, is_named=True) == []
        dump.close()

    def test_the_file_of_an_ended_process_is_found_once(self, dumps: Path) -> None:
        dump = opened()
        (dumps / "app-123456.stack").write_text(HELD)
        assert list(interpreter_lock.left_behind("app", shop())) == [
            StallFound(123456, "/srv/shop/tasks.py:31 in wait; or /srv/shop/words.py:7 in split", "shop.crunch")
        ]
        assert list(interpreter_lock.left_behind("app", shop())) == []
        assert [path.name for path in dumps.iterdir()] == [f"app-{os.getpid()}.stack"], "that of a live process stays"
        dump.close()

    def test_the_file_of_another_app_is_left_to_it(self, dumps: Path) -> None:
        """This one does not know its tasks."""
        dump = opened()
        other = stack_dump.name_of("other:app", "postgresql://one")
        assert (
            len({other, stack_dump.name_of("app:app", "postgresql://one"), stack_dump.name_of("app:app", "postgresql://two")})
            == 3
        )
        (dumps / f"{other}-123456.stack").write_text(HELD)
        assert list(interpreter_lock.left_behind("app", shop())) == []
        assert [found.pid for found in interpreter_lock.left_behind(other, Registry())] == [123456]
        dump.close()

    def test_a_folder_of_another_user_is_not_used(self, dumps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
        assert StackDump.open("app", after_s=1.0, clock=SystemClock()) is None
        assert list(stack_dump.left_behind("app")) == []

    def test_it_is_written_while_python_cannot_run(self, dumps: Path) -> None:
        """With a real watchdog: this thread keeps the interpreter until its stack is in the file, or the time is up."""
        dump = StackDump.open("app", after_s=0.01, clock=SystemClock())
        assert dump is not None
        dump.arm()
        until = time.monotonic() + LONG_S
        file = dumps / f"app-{os.getpid()}.stack"
        while NAME not in str(stacks.of_dump(file.read_text()).get(threading.get_ident())):  # it is written line by line
            assert time.monotonic() < until
        assert NAME in (dump.take() or "")
        assert dump.take() is None, "it is taken once"
        dump.close()


def opened() -> StackDump:
    dump = StackDump.open("app", after_s=STALL_S, clock=SystemClock())
    assert dump is not None
    return dump
