"""Functions on the event loop and in threads: what they return, how they stop, and when their slot is free."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from sexton.errors import ArgumentsMismatch, PermanentError
from sexton.handlers.context import Call, Context, Stopped
from sexton.handlers.handle import Handle
from sexton.handlers.python.function import AsyncFunction, ProcessFunction, ThreadFunction, handler_for
from sexton.handlers.python.process_pool import ProcessPool
from sexton.handlers.python.threads import ThreadSlots

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_S = 10.0


def begin(handler: AsyncFunction | ThreadFunction, **arguments: Any) -> Handle:
    call = Call(UUID(int=1), UUID(int=2), 1, "task", None, "acme", "default", NOON, NOON, None, None, arguments)
    return handler.start(call, Context(call))


async def settled(future: asyncio.Future[Any]) -> None:
    done, _ = await asyncio.wait([future], timeout=LONG_S)
    assert done, "still not done"


@pytest.fixture
def threads() -> Iterator[ThreadSlots]:
    slots = ThreadSlots(8)
    yield slots
    slots.close()


def test_where_a_function_runs_follows_from_what_it_is(threads: ThreadSlots) -> None:
    async def on_the_loop(ctx: Context) -> None: ...
    def in_a_thread(ctx: Context) -> None: ...

    def kind(fn: Callable[..., Any], *, process: bool) -> type:
        pool = ProcessPool(1)
        return type(handler_for(fn, process=process, threads=threads, processes=pool, where=("module", "name")))

    assert kind(on_the_loop, process=False) is AsyncFunction
    assert kind(in_a_thread, process=False) is ThreadFunction
    assert kind(in_a_thread, process=True) is kind(on_the_loop, process=True) is ProcessFunction


def test_a_function_that_another_process_could_not_import_is_rejected_early() -> None:
    with pytest.raises(ValueError, match="at the top level of its module"):
        ProcessFunction(len, "module", "outer.<locals>.inner", ProcessPool(1))


class TestAsync:
    async def test_a_call_returns_its_result(self) -> None:
        async def double(ctx: Context, number: int) -> int:
            return 2 * number

        handle = begin(AsyncFunction(double), number=21)
        assert await handle.done == 42
        assert handle.freed.done()
        assert handle.force_stop()

    async def test_wrong_arguments_fail_at_the_start(self) -> None:
        async def double(ctx: Context, number: int) -> int:
            return 2 * number

        with pytest.raises(ArgumentsMismatch, match="double has no argument 'numbr'; it takes number"):
            begin(AsyncFunction(double), numbr=21)
        with pytest.raises(ArgumentsMismatch, match="double needs the argument number"):
            begin(AsyncFunction(double))

    async def test_a_request_to_stop_cancels_it(self) -> None:
        seen = []

        async def wait(ctx: Context) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(ctx.cancelled)

        handle = begin(AsyncFunction(wait))
        await asyncio.sleep(0)
        handle.ask_to_stop()
        await settled(handle.done)
        assert handle.done.cancelled()
        assert seen == [True]

    async def test_a_coroutine_that_ignores_its_cancellation_becomes_a_zombie(self) -> None:
        release = asyncio.Event()

        async def stubborn(ctx: Context) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            raise ValueError("nobody listens any more")

        handle = begin(AsyncFunction(stubborn))
        await asyncio.sleep(0)
        handle.ask_to_stop()
        await asyncio.sleep(0)
        assert handle.force_stop() is False
        assert isinstance(handle.done.exception(), Stopped)
        assert not handle.freed.done()
        release.set()
        await settled(handle.freed)
        assert handle.force_stop() is True


class TestThread:
    async def test_a_call_returns_its_result(self, threads: ThreadSlots) -> None:
        def double(ctx: Context, number: int) -> int:
            return 2 * number

        handle = begin(ThreadFunction(double, threads), number=21)
        assert await handle.done == 42
        await settled(handle.freed)
        assert handle.force_stop()

    async def test_an_exception_reaches_the_worker(self, threads: ThreadSlots) -> None:
        def fail(ctx: Context) -> None:
            ctx.give_up("no use")

        with pytest.raises(PermanentError, match="no use"):
            await begin(ThreadFunction(fail, threads)).done

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
    async def test_an_exception_that_a_future_or_the_loop_rejects_is_an_ordinary_failure(
        self, threads: ThreadSlots, error: BaseException
    ) -> None:
        def fail(ctx: Context) -> None:
            raise error

        with pytest.raises(RuntimeError, match=type(error).__name__) as failure:
            await begin(ThreadFunction(fail, threads)).done
        assert failure.value.__cause__ is error

    async def test_context_variables_are_passed_on(self, threads: ThreadSlots) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("set")
        assert await begin(ThreadFunction(lambda ctx: variable.get(), threads)).done == "set"

    async def test_after_a_request_to_stop_it_sees_the_flag(self, threads: ThreadSlots) -> None:
        began = asyncio.Event()
        asked = threading.Event()
        loop = asyncio.get_running_loop()

        def patient(ctx: Context) -> None:
            loop.call_soon_threadsafe(began.set)
            assert asked.wait(LONG_S)
            ctx.check_cancelled()

        handle = begin(ThreadFunction(patient, threads))
        await began.wait()
        handle.ask_to_stop()
        asked.set()
        with pytest.raises(Stopped):
            await handle.done
        await settled(handle.freed)

    async def test_a_thread_that_never_checks_the_flag_becomes_a_zombie_and_others_continue(self) -> None:
        threads = ThreadSlots(2)
        began, release = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def stuck(ctx: Context) -> str:
            loop.call_soon_threadsafe(began.set)
            assert release.wait(LONG_S)
            return "too late"

        zombie = begin(ThreadFunction(stuck, threads))
        await began.wait()
        zombie.ask_to_stop()
        assert zombie.force_stop() is False
        assert isinstance(zombie.done.exception(), Stopped)
        assert await begin(ThreadFunction(lambda ctx: "fine", threads)).done == "fine"
        assert not zombie.freed.done()
        release.set()
        await settled(zombie.freed)
        assert zombie.force_stop() is True
        threads.close()

    async def test_beyond_the_limit_a_call_waits_and_may_be_stopped_before_it_begins(self) -> None:
        threads = ThreadSlots(1)
        release = threading.Event()
        first = begin(ThreadFunction(lambda ctx: release.wait(LONG_S), threads))
        ran = []
        second = begin(ThreadFunction(lambda ctx: ran.append(ctx), threads))
        second.ask_to_stop()
        release.set()
        with pytest.raises(Stopped):
            await second.done
        assert await first.done
        assert ran == []
        threads.close()

    async def test_an_idle_thread_is_reused_without_the_state_of_its_last_call(self, threads: ThreadSlots) -> None:
        class Argument:
            pass

        def name(ctx: Context, argument: Argument | None) -> str:
            return threading.current_thread().name

        argument = Argument()
        remembered = weakref.ref(argument)
        names = {await begin(ThreadFunction(name, threads), argument=argument).done}
        del argument
        for _ in range(20):
            names.add(await begin(ThreadFunction(name, threads), argument=None).done)
        gc.collect()
        assert len(names) == 1
        assert remembered() is None

    def test_a_result_for_a_closed_loop_is_dropped(self, threads: ThreadSlots) -> None:
        began, release = threading.Event(), threading.Event()
        complaints: list[object] = []

        def late(ctx: Context) -> None:
            began.set()
            assert release.wait(LONG_S)

        async def leave() -> None:
            begin(ThreadFunction(late, threads))
            assert began.wait(LONG_S)

        asyncio.run(leave())
        original, threading.excepthook = threading.excepthook, complaints.append
        try:
            release.set()
            assert asyncio.run(self._name_of_next(threads)) == "sexton-handler-1"
        finally:
            threading.excepthook = original
        assert complaints == []

    async def _name_of_next(self, threads: ThreadSlots) -> str:
        """A thread that executes the next call has delivered the result of the last."""
        while True:
            name: str = await begin(ThreadFunction(lambda ctx: threading.current_thread().name, threads)).done
            if name == "sexton-handler-1":
                return name

    def test_a_stuck_thread_does_not_keep_the_process_from_ending(self) -> None:
        script = """
import threading
from sexton.handlers.python.threads import ThreadSlots
began = threading.Event()
ThreadSlots(1).run(lambda: began.set() or threading.Event().wait())
began.wait()
"""
        assert subprocess.run([sys.executable, "-c", script], timeout=LONG_S, check=False).returncode == 0
