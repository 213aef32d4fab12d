"""One call of a batch function, shared by the executions of its runs. Each execution has a `Share`: a handle like any other,
which ends when its run is decided, by the handler or by the end of the call.

A run is decided once: by the handler, by leaving the call, or by the call's end, whichever comes first, on any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from sexton.domain.batch import RunArguments, half
from sexton.domain.outcome import shown
from sexton.errors import ArgumentsMismatch, PermanentError, SextonError, Snooze
from sexton.handlers.context import Call, Context, Stopped, ask_to_stop
from sexton.handlers.handle import Handle
from sexton.handlers.python.function import Fence, WorkedFor, deliverable
from sexton.handlers.tracebacks import drop_tracebacks_of

from .context import BatchContext, Run

Start = Callable[["SharedCall"], Handle]


class FailedTogether(SextonError):
    """Control flow of a call that failed with several runs in it: which of them is the cause is not known."""

    code = "failed_together"

    def __init__(self, message: str, *, run_count: int, batch_limit: int) -> None:
        super().__init__(message)
        self.run_count, self.batch_limit = run_count, batch_limit


class Share:
    """One run's part in the call."""

    __slots__ = ("_shared", "call", "context", "done", "index")

    def __init__(self, shared: SharedCall, index: int, call: Call, context: Context) -> None:
        self._shared, self.index, self.call, self.context = shared, index, call, context
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def freed(self) -> asyncio.Future[Any]:
        """The slot of the call is freed by the group of executions."""
        return self.done

    def ask_to_stop(self) -> None:
        """All runs of the call."""
        self._shared.ask_to_stop()

    def force_stop(self) -> bool:
        self._shared.force_stop()
        return True

    def leave(self) -> bool:
        """Decides this run without the handler, which sees `run.cancelled`. False if it was decided before."""
        return self._shared.leave(self)

    def is_executed_by(self, task: object) -> bool:
        return self._shared.is_executed_by(task)


class SharedCall:
    def __init__(self, task: str, arguments: RunArguments, start: Start) -> None:
        self._task, self._arguments, self._start = task, arguments, start
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._handle: Handle | None = None
        self._is_asked = self._is_finished = False
        self.shares: list[Share] = []
        self.runs: list[Run[Any]] = []
        self.context = BatchContext(task, self.runs, self.decide, self._open.__contains__)
        self.failure: FailedTogether | None = None
        self.freed: asyncio.Future[None] = self._loop.create_future()  # the function has ended: its slot may be used again
        self.on_leave: Callable[[Share], None] = _tells_no_child

    def add(self, call: Call, context: Context) -> Share:
        """`ArgumentsMismatch` names the field of the payload that does not fit. Only this run fails; it is tried again, because
        in a rolling deploy the next worker may know the field."""
        try:
            arguments = self._arguments.read(call.arguments)
        except msgspec.ValidationError as error:
            raise ArgumentsMismatch(f"payload: {error}") from None
        share = Share(self, len(self.shares), call, context)
        self.shares.append(share)
        self.runs.append(Run(context, arguments, share.index))
        self._open.add(share.index)
        return share

    def begin(self) -> None:
        """Starts the function. An error of the start is one of the call."""
        if not self.shares:
            self._is_finished = True
            self._free()
            return
        try:
            self._handle = self._start(self)
        except Exception as error:
            self._is_finished = True
            self._settle_all(error)
            self._free()
            return
        self._handle.done.add_done_callback(self._ended)
        self._handle.freed.add_done_callback(lambda _: self._free())

    @property
    def worked_for(self) -> WorkedFor:
        first = self.shares[0].call
        return first.run_id, first.token, first.task, self.fences

    def fences(self) -> list[Fence]:
        """Of the runs that are not decided. From any thread."""
        with self._lock:
            return [(self.shares[index].call.run_id, self.shares[index].call.token) for index in self._open]

    def is_executed_by(self, task: object) -> bool:
        return self._handle is not None and self._handle.done is task

    def decide(self, index: int, result: Any, error: BaseException | None) -> bool:
        """By the handler, from any thread."""
        if not self._take(index):
            return False
        share = self.shares[index]
        if threading.get_ident() == self._thread_id:
            _settle(share, result, error)
            return True
        with suppress(RuntimeError):  # the loop is closed: the worker has ended, and nothing waits for the result
            self._loop.call_soon_threadsafe(_settle, share, result, error)
        return True

    def leave(self, share: Share) -> bool:
        if not self._take(share.index):
            return False
        ask_to_stop(share.context)
        self.on_leave(share)
        _settle(share, None, Stopped("its run has left the call"))
        return True

    @property
    def is_empty(self) -> bool:
        """No run is left to decide."""
        return not self._open

    def ask_to_stop(self) -> None:
        if self._is_asked or self._is_finished or self._handle is None:
            return
        self._is_asked = True
        for share in self.shares:
            if share.index in self._open:
                ask_to_stop(share.context)
        self._handle.ask_to_stop()

    def force_stop(self) -> None:
        """Ends the call for all its runs. The function may still run, and keeps the slot of its call then."""
        if self._handle is not None and not self._is_finished:
            self._handle.force_stop()
            self._ended(self._handle.done)  # another one for a task

    def _take(self, index: int) -> bool:
        with self._lock:
            if index not in self._open:
                return False
            self._open.discard(index)
            return True

    def _ended(self, done: asyncio.Future[Any]) -> None:
        if self._is_finished or not done.done():
            return
        self._is_finished = True
        error = asyncio.CancelledError("the handler cancelled itself") if done.cancelled() else done.exception()
        if error is None:
            self._return(done.result())
        else:
            self._settle_all(error)
            self._loop.call_soon(drop_tracebacks_of, done)  # after the executions have read it

    def _return(self, returned: Any) -> None:
        """Runs that the handler has not decided have succeeded."""
        try:
            results = results_of(returned, len(self.shares))
        except PermanentError as error:
            self._settle_each(error)
            return
        for share in self.shares:
            if self._take(share.index):
                _settle(share, results[share.index], None)

    def _settle_all(self, error: BaseException) -> None:
        """Rule "a failed call is halved": the error is charged only to a run that was alone in its call."""
        count, left_count = len(self.shares), len(self._open)
        if count > 1 and not isinstance(error, Snooze):
            message = f"its call failed with {count:,} runs in it: {_short(error)}"
            self.failure = error = FailedTogether(message, run_count=left_count, batch_limit=half(left_count))
        self._settle_each(error)

    def _settle_each(self, error: BaseException) -> None:
        for share in self.shares:
            if self._take(share.index):
                _settle(share, None, error)

    def _free(self) -> None:
        """Context, shares and handle refer to this call: without them, all is freed without the garbage collector."""
        self.context.close()
        self.shares, self._handle, self.on_leave = [], None, _tells_no_child
        if not self.freed.done():
            self.freed.set_result(None)


def _tells_no_child(_share: Share) -> None:
    """Only a child process has to be told that a run has left its call."""


def results_of(returned: Any, count: int) -> Sequence[Any]:
    """What a handler has returned: one result for each of its runs, in order, or nothing. Anything else is a permanent error,
    as any result that cannot be stored: the call has had its effect, and another one would only repeat it."""
    if returned is None:
        return [None] * count
    if isinstance(returned, list | tuple) and len(returned) == count:
        return returned
    what = f"{len(returned):,} results" if isinstance(returned, list | tuple) else f"a {type(returned).__name__}"
    raise PermanentError(
        f"result: the handler returned {what} for {count:,} runs; return a list with one result for each, in order, or nothing"
    )


def _settle(share: Share, result: Any, error: BaseException | None) -> None:
    if share.done.done():
        return
    if error is None:
        share.done.set_result(result)
    elif isinstance(error, asyncio.CancelledError):
        share.done.cancel()
    else:
        share.done.set_exception(deliverable(error))


def _short(error: BaseException) -> str:
    return shown(error)[:400]
