"""The event loop of a service: only the end of the service stops it, no handler changes it, and what a handler's callback
raises does not end it."""

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

from sexton.domain.reminders import Reminders
from sexton.errors import SextonError
from sexton.handlers import forked
from sexton.handlers.python import left_children
from sexton.handlers.python.function import worked_for
from sexton.telemetry import logs
from sexton.telemetry.events import LoopCallRefused, LoopInterrupted

from . import bounded_exit, service_tasks
from .signal_watch import SignalWatch

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SETTLE_S = 0.5  # for tasks that are cancelled at the end
TELL_S = 60.0  # a task that repeats the same call is named once in this time


class ServiceLoop(uvloop.Loop):
    """While the service runs, it refuses the calls that would end the loop, or change it for all tasks of this process."""

    main: asyncio.Task[None] | None = None
    signals: SignalWatch | None = None

    def __init__(self) -> None:
        super().__init__()
        self._reminders = Reminders(TELL_S)
        self.set_task_factory(service_tasks.make)

    def stop(self) -> None:
        self._refuse("stop()")
        super().stop()

    def close(self) -> None:
        self._refuse("close()")
        super().close()

    def shutdown_asyncgens(self) -> Coroutine[Any, Any, None]:
        """It would close the transactions of the worker and of all handlers."""
        self._refuse("shutdown_asyncgens()")
        return super().shutdown_asyncgens()

    def shutdown_default_executor(self, timeout: float | None = None) -> Coroutine[Any, Any, None]:
        self._refuse("shutdown_default_executor()")
        return super().shutdown_default_executor(timeout)

    def set_default_executor(self, executor: Any) -> None:
        self._refuse("set_default_executor()")
        super().set_default_executor(executor)

    def set_task_factory(self, factory: Any) -> None:
        self._refuse("set_task_factory()")
        super().set_task_factory(factory)

    def set_exception_handler(self, handler: Any) -> None:
        self._refuse("set_exception_handler()")
        super().set_exception_handler(handler)

    def set_debug(self, enabled: bool) -> None:
        self._refuse("set_debug()")
        super().set_debug(enabled)

    def _refuse(self, call: str) -> None:
        if self.main is not None and not self.main.done():
            self.tell_refused(call)
            raise RuntimeError(f"this event loop belongs to the service; a handler cannot call {call} on it")

    def tell_refused(self, call: str) -> None:
        """Names the task, if the call does not come from a thread that a handler has started."""
        run_id, _, task, _ = worked_for() or (None, 0, None, None)
        if self._reminders.is_due((call, task), self.time()):
            logs.write(LoopCallRefused(call, task, run_id))


class _Requests:
    """What signals ask of this process: to stop, and to end at once."""

    def __init__(self, loop: ServiceLoop, stop: asyncio.Event, limit_s: float) -> None:
        self._loop, self._stop, self._limit_s, self._pid = loop, stop, limit_s, os.getpid()
        self._asked_count = self._heard_count = 0
        self._is_armed = False

    def asked(self, _number: int, _frame: FrameType | None) -> None:
        """A plain signal handler, because one of the loop would wait for a handler that blocks the loop."""
        self._asked_count += 1
        if self._asked_count > 1 or self._stop.is_set() or os.getpid() != self._pid:
            os._exit(1)  # a process that was just forked has its signals, too
        self._arm()
        self._loop.call_soon_threadsafe(self._stop.set)

    def heard(self, number: int) -> None:
        """The same signal, in the thread of `SignalWatch`: also while the main thread cannot call `asked`."""
        if number in SIGNALS:
            self._heard_count += 1
            if self._heard_count > 1:
                os._exit(1)
            self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            bounded_exit.within(self._limit_s)


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, stop_limit_s: float) -> None:
    """Runs `main` until it ends. It gets an event that the first SIGTERM or SIGINT sets; `stop_limit_s` later the process ends
    in any case. The second signal ends it at once.

    Not by `asyncio.run`, which would wait for tasks that ignore a cancel, and for threads of handlers."""
    loop, stop = ServiceLoop(), asyncio.Event()
    requests = _Requests(loop, stop, stop_limit_s)
    before = {number: signal.signal(number, requests.asked) for number in SIGNALS}
    bounded_exit.expect()
    if bounded_exit.is_expected():
        forked.end_children_that_return(_run_on)
        left_children.note_at_forks()
        loop.signals = SignalWatch.start(requests.heard)
    loop.main = loop.create_task(main(stop))
    while not loop.main.done():
        _run_on(loop)
    with suppress(BaseException):
        loop.run_until_complete(_settle())
    if not bounded_exit.is_expected():
        _give_back(loop, before)
    if loop.main.cancelled():
        raise SextonError("the main task of this service was cancelled by code of a handler; it has stopped: start a new one")
    loop.main.result()


def _give_back(loop: ServiceLoop, signals: dict[signal.Signals, Any]) -> None:
    """To a process that continues."""
    for number, handler in signals.items():
        signal.signal(number, handler)
    loop.close()


def _run_on(loop: ServiceLoop) -> None:
    """Until its main task ends, or a callback raises `SystemExit` or another exception that asyncio lets pass."""
    assert loop.main is not None  # noqa: S101
    if loop.signals is not None:
        loop.call_soon(loop.signals.attend)
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
