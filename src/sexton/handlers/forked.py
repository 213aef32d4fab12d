"""Rule "a forked process does not return": a process that a handler forks is a copy of the worker. It may do what the handler
does in it, but must never run the worker's code, because it shares the worker's connections to the database. So it ends where
it would return into that code.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_callers: set[CodeType] = set()
_loops: set[CodeType] = set()
_is_child = False

_RETURNED = (
    "sexton: a process that a handler forked has returned from the handler, and was ended; "
    "end it with os._exit() inside the handler, or use multiprocessing or process=True\n"
)


def calls_a_handler(function: F) -> F:
    """Marks a function that calls handlers. Where it receives an exception of a handler, it calls `end_if_child`."""
    _callers.add(function.__code__)
    return function


def task_on(frame: FrameType | None) -> str | None:
    """The task of the handler on this stack, if there is one: from the context that its caller holds."""
    while frame is not None:
        if frame.f_code in _callers:
            context = frame.f_locals.get("context") or getattr(frame.f_locals.get("self"), "_context", None)
            return getattr(context, "task", None)
        frame = frame.f_back
    return None


def end_children_that_return(*loops: Callable[..., Any]) -> None:
    """In this process from now on. `loops` are functions that run an event loop."""
    os.register_at_fork(after_in_child=_begin_child)
    _loops.update(loop.__code__ for loop in loops)


def end_if_child(error: BaseException) -> None:
    """Ends the child as the interpreter would with this exception, but without exit handlers: they belong to the worker."""
    if not _is_child:
        return
    if isinstance(error, SystemExit):
        os._exit(error.code if isinstance(error.code, int) else 0 if error.code is None else 1)
    traceback.print_exception(error)
    os._exit(1)


def _begin_child() -> None:
    """Only a child runs this, so it costs the worker nothing. A profile function sees when a frame returns, or yields to the
    event loop. It makes the child slower. A child of `multiprocessing` never returns, so it does not need one."""
    global _is_child
    _is_child = True
    signal.set_wakeup_fd(-1)  # it belongs to the worker: a signal to the child would wake the worker
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    boundary = _boundary(sys._getframe(1))
    if boundary is None:
        return

    def look(frame: FrameType, event: str, _argument: object) -> None:
        if frame is boundary and event == "return":
            os.write(2, _RETURNED.encode())
            os._exit(0)

    sys.setprofile(look)


def _boundary(frame: FrameType | None) -> FrameType | None:
    """The outermost frame that the child must not leave: that of the caller of its handler, or else of a callback that the
    event loop has called. `None` if it never returns into the worker's code."""
    inner = None
    while frame is not None:
        if frame.f_globals.get("__name__") == "multiprocessing.popen_fork":
            return None
        if frame.f_code in _callers:
            return frame
        if frame.f_code in _loops:
            return inner
        inner, frame = frame, frame.f_back
    return None
