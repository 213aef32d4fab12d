"""How a batch function is called: on the event loop, in a thread, or in a process."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import assert_never

from sexton.domain.batch import run_arguments
from sexton.handlers.context import Call, Context
from sexton.handlers.handle import Handle
from sexton.handlers.python.function import Function, TaskHandle, ThreadHandle, guarded, importable
from sexton.handlers.python.messages import Alive, Logged, OfRun, Progressed, Raised, Returned, StartBatch, StopRun
from sexton.handlers.python.process_pool import FunctionHandle, ProcessPool, exception_of, write
from sexton.handlers.python.threads import ThreadSlots

from .shared_call import Share, SharedCall


class BatchFunction:
    """The handler of a batch task. `open` a call, start executions, then `begin` it."""

    def __init__(
        self, name: str, fn: Function, *, process: bool, threads: ThreadSlots, processes: ProcessPool, where: tuple[str, str]
    ) -> None:
        """`where` is the module and the qualified name by which another process finds the function."""
        self._name, self._fn, self._arguments = name, fn, run_arguments(fn)
        if process:
            module, file = importable(where[0])
            self._start = partial(_in_process, processes, module, file, where[1])
        elif inspect.iscoroutinefunction(fn):
            self._start = partial(_on_loop, fn)
        else:
            self._start = partial(_in_thread, fn, threads)
        self._opened: SharedCall | None = None

    def open(self) -> SharedCall:
        """Executions that are started from now on share this call."""
        self._opened = SharedCall(self._name, self._arguments, self._start)
        return self._opened

    def start(self, call: Call, context: Context) -> Handle:
        assert self._opened is not None, "a group opens the call before it starts its executions"  # noqa: S101
        return self._opened.add(call, context)


def _on_loop(fn: Function, shared: SharedCall) -> Handle:
    handler = guarded(fn(shared.context, shared.runs), shared.context, shared.worked_for)
    return TaskHandle(asyncio.get_running_loop().create_task(handler), shared.context, shared.worked_for)


def _in_thread(fn: Function, threads: ThreadSlots, shared: SharedCall) -> Handle:
    handle = ThreadHandle(lambda context: fn(context, shared.runs), {}, shared.context, shared.worked_for)
    threads.run(handle.work)
    return handle


def _in_process(pool: ProcessPool, module: str, file: str | None, qualname: str, shared: SharedCall) -> Handle:
    return BatchProcessHandle(pool, module, file, qualname, shared)


class BatchProcessHandle(FunctionHandle):
    """The child decides runs by messages. What it says about a run that has left the call is refused here."""

    __slots__ = ("_shared", "_where")

    def __init__(self, pool: ProcessPool, module: str, file: str | None, qualname: str, shared: SharedCall) -> None:
        self._shared, self._where = shared, (module, file, qualname)
        shared.on_leave = self._tell
        super().__init__(pool, self._message, shared.context, self._receive)

    def _message(self) -> StartBatch:
        """Made when a process is free: meanwhile some may have left the call."""
        shares = self._shared.shares
        left = [share.index for share in shares if share.context.cancelled]
        return StartBatch(*self._where, [share.call for share in shares], left)

    def _tell(self, share: Share) -> None:
        if self._process is not None:
            self._process.send(StopRun(share.index))

    def _receive(self, message: OfRun) -> None:
        if not 0 <= message.index < len(self._shared.shares):
            return
        match message.what:
            case Returned(result):
                self._shared.decide(message.index, result, None)
            case Raised():
                self._shared.decide(message.index, None, exception_of(message.what))
            case Alive() | Progressed() | Logged():
                write(message.what, self._shared.shares[message.index].context)
            case _:
                assert_never(message.what)
