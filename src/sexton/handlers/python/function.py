"""Handlers over a plain Python function `fn(ctx, **arguments)`: on the event loop, in a thread, or in a process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from sexton.domain.outcome import shown
from sexton.handlers.context import Call, Context, Stoppable, Stopped, ask_to_stop
from sexton.handlers.forked import calls_a_handler, end_if_child
from sexton.handlers.handle import Handle, Handler
from sexton.handlers.tracebacks import drop_tracebacks_of

from .argument_check import ArgumentCheck
from .messages import Start
from .process_pool import ProcessPool
from .threads import ThreadSlots

Function = Callable[..., Any]
Fence = tuple[UUID, int]  # run and token
# Run, token and task of a call. A call of a batch has those of its first run, and tells all that are not decided yet.
WorkedFor = tuple[UUID, int, str, Callable[[], Sequence[Fence]] | None]

_worked_for: contextvars.ContextVar[WorkedFor | None] = contextvars.ContextVar("sexton_worked_for", default=None)


def worked_for() -> WorkedFor | None:
    """The call that the running code belongs to: the handler itself, or tasks, callbacks and timers that it has left on the
    event loop."""
    return _worked_for.get()


def worked_for_by(task: asyncio.Task[Any]) -> WorkedFor | None:
    """The same for a task of the event loop: a handler's task, or one that the handler started. Python 3.11 does not tell the
    context of a task that a handler started."""
    get_context = getattr(task, "get_context", None)
    return None if get_context is None else get_context().get(_worked_for)


def fences_of(task: asyncio.Task[Any]) -> Sequence[Fence]:
    """The runs that a task works for. There are several if it is a call of a batch."""
    found = worked_for_by(task)
    if found is None:
        return ()
    run_id, token, _, together = found
    return ((run_id, token),) if together is None else together()


def handler_for(
    fn: Function, *, process: bool, threads: ThreadSlots, processes: ProcessPool, where: tuple[str, str]
) -> Handler:
    """`where` is the module and the qualified name by which another process finds the function."""
    if process:
        return ProcessFunction(fn, *where, processes)
    if inspect.iscoroutinefunction(fn):
        return AsyncFunction(fn)
    return ThreadFunction(fn, threads)


class AsyncFunction:
    """The hot path: one asyncio task and almost nothing else."""

    __slots__ = ("_check", "_fn")

    def __init__(self, fn: Function) -> None:
        self._fn = fn
        self._check = ArgumentCheck(fn).check

    def start(self, call: Call, context: Context) -> Handle:
        self._check(call.arguments)
        run = (call.run_id, call.token, call.task, None)
        handler = guarded(self._fn(context, **call.arguments), context, run)
        return TaskHandle(asyncio.get_running_loop().create_task(handler), context, run)


@calls_a_handler
async def guarded(handler: Awaitable[Any], context: Stoppable, run: WorkedFor) -> Any:
    """`sys.exit()` ends only the handler. Without this, asyncio would end the worker with all its runs.
    `task_on` reads `context` from the stack."""
    _worked_for.set(run)
    try:
        return await handler
    except BaseException as error:
        end_if_child(error)
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            raise
        raise RuntimeError(f"the handler raised {shown(error)}") from error


class TaskHandle:
    __slots__ = ("_context", "_run", "_task", "done")

    def __init__(self, task: asyncio.Task[Any], context: Stoppable, run: WorkedFor | None = None) -> None:
        """`run`, if the task executes code of the app."""
        self._task = task
        self._run = run
        self._context = context
        self.done: asyncio.Future[Any] = task

    @property
    def freed(self) -> asyncio.Future[Any]:
        return self._task

    def ask_to_stop(self) -> None:
        """A cancel reaches what the task waits for, which may be any task that the handler has found. So it counts as a cancel
        by the handler, which cannot cancel tasks of the worker. Only its own task is always cancelled."""
        ask_to_stop(self._context)
        as_handler = contextvars.copy_context()  # a change of this one would also be seen by the task that calls
        as_handler.run(_worked_for.set, self._run)
        as_handler.run(asyncio.Task.cancel, self._task)

    def force_stop(self) -> bool:
        if self._task.done():
            return True
        self.done = self._task.get_loop().create_future()
        self.done.set_exception(Stopped("it did not stop when cancelled"))
        self._task.add_done_callback(_forget)
        return False


def _forget(task: asyncio.Task[Any]) -> None:
    """Reads a zombie's exception, so that asyncio does not log that it was never retrieved, and frees its variables."""
    drop_tracebacks_of(task)


class ThreadFunction:
    __slots__ = ("_check", "_fn", "_threads")

    def __init__(self, fn: Function, threads: ThreadSlots) -> None:
        self._fn = fn
        self._check = ArgumentCheck(fn).check
        self._threads = threads

    def start(self, call: Call, context: Context) -> Handle:
        self._check(call.arguments)
        handle = ThreadHandle(self._fn, call.arguments, context, (call.run_id, call.token, call.task, None))
        self._threads.run(handle.work)
        return handle


class ThreadHandle:
    __slots__ = ("_arguments", "_context", "_fn", "_loop", "_variables", "done", "freed")

    def __init__(self, fn: Function, arguments: dict[str, Any], context: Stoppable, run: WorkedFor) -> None:
        self._loop = asyncio.get_running_loop()
        self._fn = fn
        self._arguments = arguments
        self._context = context
        self._variables = contextvars.copy_context()
        self._variables.run(_worked_for.set, run)
        self.done: asyncio.Future[Any] = self._loop.create_future()
        self.freed: asyncio.Future[Any] = self._loop.create_future()

    def ask_to_stop(self) -> None:
        ask_to_stop(self._context)

    def force_stop(self) -> bool:
        ask_to_stop(self._context)
        self._settle(None, Stopped("it did not stop when asked"))
        return self.freed.done()

    @calls_a_handler
    def work(self) -> Callable[[], None]:
        """Runs in the thread."""
        try:
            self._context.check_cancelled()  # the stop may have come while it waited for a thread
            return partial(self._deliver, self._variables.run(self._fn, self._context, **self._arguments), None)
        except BaseException as raised:
            end_if_child(raised)
            # Not in a variable: the traceback refers to this frame, so the frame must not refer to the exception.
            return partial(self._deliver, None, deliverable(raised))

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the worker has ended, and nothing waits for the result
            self._loop.call_soon_threadsafe(self._end, result, error)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._settle(result, error)
        self.freed.set_result(None)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(error)


def deliverable(error: BaseException) -> BaseException:
    """A future does not accept StopIteration, and sys.exit() in a handler must not end the worker."""
    kind = type(error)  # `isinstance` would also ask the handler's class
    if issubclass(kind, Stopped) or (issubclass(kind, Exception) and not issubclass(kind, StopIteration)):
        return error
    replaced = RuntimeError(f"the handler raised {shown(error)}")
    replaced.__cause__ = error
    return replaced


class ProcessFunction:
    __slots__ = ("_check", "_file", "_module", "_pool", "_qualname")

    def __init__(self, fn: Function, module: str, qualname: str, pool: ProcessPool) -> None:
        self._check = ArgumentCheck(fn).check
        if "<locals>" in qualname:
            raise ValueError(f"{module}.{qualname}: a task with process=True must be defined at the top level of its module")
        self._module, self._file = importable(module)
        self._qualname = qualname
        self._pool = pool

    def start(self, call: Call, context: Context) -> Handle:
        self._check(call.arguments)
        return self._pool.start(Start(self._module, self._file, self._qualname, call), context)


def importable(module: str) -> tuple[str, str | None]:
    """The name by which another process imports the module, or, for a script, the file that it loads instead."""
    if module != "__main__":
        return module, None
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name != "__main__":  # python -m package.module
        return spec.name, None
    if file is None:
        raise ValueError("a task with process=True must be defined in a file, not in an interactive session")
    return module, file
