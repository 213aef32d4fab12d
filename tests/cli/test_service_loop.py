"""The event loop of a service, against code of handlers. In real workers: tests/process/test_hostile_handlers.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sexton.cli import service_loop
from sexton.telemetry import logs
from sexton.telemetry.events import Event, LoopCallRefused
from tests.rig import LONG_S

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
