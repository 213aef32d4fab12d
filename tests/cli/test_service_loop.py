"""The event loop of a service, against code of handlers. In real workers: tests/process/test_hostile_handlers.py."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from sexton.cli import service_loop
from sexton.errors import SextonError
from sexton.handlers.context import Call, Context
from sexton.handlers.handle import Handle
from sexton.handlers.python.function import AsyncFunction
from sexton.telemetry import logs
from sexton.telemetry.events import Event, LoopCallRefused
from tests.rig import LONG_S

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
CALLS: dict[str, Callable[[asyncio.AbstractEventLoop], Any]] = {
    "stop()": lambda loop: loop.stop(),
    "close()": lambda loop: loop.close(),
    "shutdown_asyncgens()": lambda loop: loop.shutdown_asyncgens(),
    "shutdown_default_executor()": lambda loop: loop.shutdown_default_executor(),
    "set_default_executor()": lambda loop: loop.set_default_executor(ThreadPoolExecutor(1)),
    "set_task_factory()": lambda loop: loop.set_task_factory(None),
    "set_exception_handler()": lambda loop: loop.set_exception_handler(None),
    "set_debug()": lambda loop: loop.set_debug(True),
}


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    events: list[Event] = []
    monkeypatch.setattr(logs, "write", events.append)
    return events


@pytest.mark.parametrize("call", CALLS)
def test_the_loop_refuses_what_would_change_it_for_all(call: str, logged: list[Event]) -> None:
    went_on: list[str] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            went_on.append("closed")

    async def main(_stop: asyncio.Event) -> None:
        generator = generate()
        await anext(generator)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="belongs to the service"):
                await CALLS[call](asyncio.get_running_loop())
        await asyncio.to_thread(went_on.append, "executed")
        assert went_on == ["executed"], "the generator of another task was closed"
        await generator.aclose()  # type: ignore[attr-defined]

    service_loop.run(main, stop_limit_s=LONG_S)
    assert [event.call for event in logged if isinstance(event, LoopCallRefused)] == [call], "named once"


def begin(fn: Callable[[Context], Coroutine[Any, Any, Any]], task: str, run: int) -> Handle:
    """As a worker does."""
    call = Call(UUID(int=0), UUID(int=run), 1, task, None, "acme", "default", NOON, NOON, None, None, {})
    return AsyncFunction(fn).start(call, Context(call))


def cancel_others() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


async def at_once(_ctx: Context) -> None:
    cancel_others()


async def after_its_end(_ctx: Context) -> None:
    asyncio.get_running_loop().call_soon(cancel_others)


async def in_a_task_that_it_leaves(_ctx: Context) -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        cancel_others()

    asyncio.get_running_loop().left = asyncio.create_task(later())  # type: ignore[attr-defined]


async def from_a_thread(_ctx: Context) -> None:
    await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, cancel_others)


async def by_waiting_for_them(_ctx: Context) -> None:
    """When it is asked to stop, asyncio passes the cancel on to what it waits for."""
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


@pytest.mark.parametrize("attack", [at_once, after_its_end, in_a_task_that_it_leaves, from_a_thread, by_waiting_for_them])
def test_a_handler_that_cancels_all_tasks_ends_none_but_its_own(attack: Any, logged: list[Event]) -> None:
    async def main(_stop: asyncio.Event) -> None:
        go = asyncio.Event()

        async def victim(_ctx: Context) -> str:
            async with asyncio.timeout(LONG_S):
                await go.wait()
            return "done"

        service, innocent = asyncio.create_task(go.wait()), begin(victim, "innocent", 1)
        await asyncio.sleep(0)
        guilty = begin(attack, "guilty", 2)
        for _ in range(20):
            await asyncio.sleep(0.001)
        guilty.ask_to_stop()
        go.set()
        assert await innocent.done == "done"
        assert await service

    service_loop.run(main, stop_limit_s=LONG_S)
    (refused,) = [event for event in logged if isinstance(event, LoopCallRefused)]
    assert (refused.task, refused.run_id) == ("guilty", UUID(int=2))
    assert refused.call.startswith("cancel()")


def test_a_handler_may_cancel_what_is_its_own(logged: list[Event]) -> None:
    """Its own task, as `asyncio.timeout` does; tasks that it has made; and those that another handler has left, such as the
    reader of a client that all handlers share."""
    left: list[asyncio.Task[bool]] = []

    async def leaves_a_reader(_ctx: Context) -> None:
        left.append(asyncio.create_task(asyncio.Event().wait()))

    async def cancels(_ctx: Context) -> str:
        with pytest.raises(TimeoutError):
            await late()
        with pytest.raises(ExceptionGroup):
            await in_a_group()
        left[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await left[0]
        return "done"

    async def late() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    async def in_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(fails())

    async def fails() -> None:
        raise ValueError

    async def main(_stop: asyncio.Event) -> None:
        await begin(leaves_a_reader, "leaves", 1).done
        assert await asyncio.wait_for(begin(cancels, "cancels", 2).done, LONG_S) == "done"

    service_loop.run(main, stop_limit_s=LONG_S)
    assert logged == []


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_handler_is_stopped_by_its_worker(has_begun: bool, logged: list[Event]) -> None:
    async def waits(_ctx: Context) -> None:
        await asyncio.Event().wait()

    async def main(_stop: asyncio.Event) -> None:
        handle = begin(waits, "waits", 1)
        if has_begun:
            await asyncio.sleep(0)
        handle.ask_to_stop()
        await asyncio.wait([handle.done], timeout=LONG_S)
        assert handle.done.cancelled()

    service_loop.run(main, stop_limit_s=LONG_S)
    assert logged == []


def test_a_service_whose_main_task_was_cancelled_ends_in_order() -> None:
    """By code that hides which handler it belongs to."""
    order: list[str] = []

    async def main(_stop: asyncio.Event) -> None:
        try:
            contextvars.Context().run(asyncio.get_running_loop().call_soon, cancel_others)
            await asyncio.Event().wait()
        finally:
            order.append("handed back")

    with pytest.raises(SextonError, match="start a new one"):
        service_loop.run(main, stop_limit_s=LONG_S)
    assert order == ["handed back"]
