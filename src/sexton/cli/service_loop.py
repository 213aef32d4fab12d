"""The event loop of a service: only the end of the service stops it, and what a handler's callback raises does not end it."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any

import uvloop

from sexton.handlers import forked
from sexton.telemetry import logs
from sexton.telemetry.events import LoopInterrupted

from . import bounded_exit

SETTLE_S = 0.5  # for tasks that are cancelled at the end


class ServiceLoop(uvloop.Loop):
    main: asyncio.Task[None] | None = None

    def stop(self) -> None:
        if self.main is not None and not self.main.done():
            raise RuntimeError("this event loop belongs to the service; a handler cannot stop it")
        super().stop()


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, stop_limit_s: float) -> None:
    """Runs `main` until it ends. It gets an event that the first SIGTERM or SIGINT sets; `stop_limit_s` later the process ends
    in any case. The second signal ends it at once.

    Not by `asyncio.run`, which would wait for tasks that ignore a cancel, and for threads of handlers."""
    loop, stop, pid = ServiceLoop(), asyncio.Event(), os.getpid()
    asked_count = 0

    def asked(_number: int, _frame: FrameType | None) -> None:
        """A plain signal handler, because one of the loop would wait for a handler that blocks the loop."""
        nonlocal asked_count
        asked_count += 1
        if asked_count > 1 or stop.is_set() or os.getpid() != pid:  # a process that was just forked has its signals, too
            os._exit(1)
        bounded_exit.within(stop_limit_s)
        loop.call_soon_threadsafe(stop.set)

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    bounded_exit.expect()
    if bounded_exit.is_expected():
        forked.end_children_that_return(_run_on)
    loop.main = loop.create_task(main(stop))
    while not loop.main.done():
        _run_on(loop)
    with suppress(BaseException):
        loop.run_until_complete(_settle())
    if not bounded_exit.is_expected():
        _give_back(loop, before)
    loop.main.result()


def _give_back(loop: ServiceLoop, signals: dict[signal.Signals, Any]) -> None:
    """To a process that continues."""
    for number, handler in signals.items():
        signal.signal(number, handler)
    loop.close()


def _run_on(loop: ServiceLoop) -> None:
    """Until its main task ends, or a callback raises `SystemExit` or another exception that asyncio lets pass."""
    assert loop.main is not None  # noqa: S101
    try:
        loop.run_until_complete(loop.main)
    except BaseException as error:
        if loop.is_closed():
            raise
        if not loop.main.done():
            *_, last = traceback.extract_tb(error.__traceback__)
            logs.write(LoopInterrupted(repr(error), f"{last.filename}:{last.lineno}", last.name))


async def _settle() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=SETTLE_S)
