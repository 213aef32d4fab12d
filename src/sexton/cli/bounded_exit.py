"""How the process of a service ends: within a bounded time, whatever the handlers have left running.

Rule "leave in bounded time": Python itself waits without a limit for threads that are not daemons, for children of
`multiprocessing` and for exit handlers. This module imports little, because every command loads it.
"""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import linecache
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sexton.telemetry.events import ExitForced

THREADS_S = 1.0  # for threads and child processes, to end by themselves
EXIT_S = 2.0  # for threads, child processes and exit handlers together
HARD_EXIT_S = 5.0  # after this long even if a thread in C code never releases the interpreter

_owned, _expected = threading.Event(), threading.Event()
_AT_EXIT = "exit handler (atexit)"
_joining: list[threading.Thread] = []  # the one that waits for threads


def own_process() -> None:
    """The command line owns this process. When a test calls it, it does not."""
    _owned.set()


def expect() -> None:
    """A service runs: if the process is its own, `leave` ends it."""
    if _owned.is_set():
        _expected.set()


def is_expected() -> bool:
    return _expected.is_set()


def leave(code: object) -> None:
    """Ends the process with this exit code, as `sys.exit` would. Returns if the process runs no service."""
    if not is_expected():
        return
    number = code if isinstance(code, int) else 0 if code is None else 1
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(HARD_EXIT_S, exit=True, file=nowhere)
        within(EXIT_S, number)
        _join(time.monotonic() + THREADS_S)
        _tell()
        for child in _children():
            child.terminate()
        with suppress(BaseException):  # an exit handler may raise anything
            atexit._run_exitfuncs()
        _end(number)


def within(limit_s: float, code: int = 1) -> None:
    """Ends the process of a service after this time, if it still runs. Not by `threading`, whose locks a signal handler must
    not take."""
    if is_expected():
        _thread.start_new_thread(_end_after, (limit_s, code))


def at_once(forced: ExitForced, code: int = 1) -> None:
    """Ends the process of a service now, from any thread. Not even a log that is blocked keeps it."""
    if not is_expected():
        return
    from sexton.telemetry import logs

    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(THREADS_S, exit=True, file=nowhere)
        with suppress(BaseException):
            logs.write(forced)
        _end(code)


def _end_after(limit_s: float, code: int) -> None:
    time.sleep(limit_s)
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(THREADS_S, exit=True, file=nowhere)  # the log may be blocked
        with suppress(BaseException):
            _tell(limit_s)
        _end(code)


def _join(until: float) -> None:
    """Wakes idle threads of executors, and waits for all that are not daemons, in another thread, which can be left; then for
    child processes."""
    joining = threading.Thread(target=threading._shutdown, name="sexton-exit", daemon=True)  # type: ignore[attr-defined]
    _joining.append(joining)
    joining.start()
    joining.join(THREADS_S)
    for child in _children():
        child.join(max(0.0, until - time.monotonic()))


def _tell(limit_s: float | None = None) -> None:
    """Names what the process no longer waits for."""
    from sexton.telemetry import logs
    from sexton.telemetry.events import ExitForced

    threads = tuple(map(_described, filter(_is_busy, _threads())))
    if not threads and any(map(_is_in_exit_handler, _joining)):
        threads = (f"an exit handler of threading at {_place(_joining[0].ident)}",)
    children = tuple(map(_described_child, _children()))
    stuck_at = None if limit_s is None else _stuck_at()
    if threads or children or stuck_at is not None:
        logs.write(ExitForced(threads, children, stuck_at, limit_s))


def _threads() -> list[threading.Thread]:
    """Those that Python waits for: all but daemons, and all of executors."""
    executors = sys.modules.get("concurrent.futures.thread")
    awaited = () if executors is None else executors._threads_queues
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    return [thread for thread in others if not thread.daemon or thread in awaited]


def _children() -> list[Any]:
    """Children of `multiprocessing`, except daemons, which it ends itself."""
    process = sys.modules.get("multiprocessing.process")
    return [] if process is None else [child for child in process.active_children() if not child.daemon]


def _is_in_exit_handler(joining: threading.Thread) -> bool:
    """And does not wait for a thread that has just ended, which has no name left to tell."""
    frame = sys._current_frames().get(joining.ident or 0)
    if frame is None or not joining.is_alive():
        return False
    if frame.f_code is not threading._shutdown.__code__:  # type: ignore[attr-defined]
        return True
    return "atexit_call(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)  # a handler in C has no frame


def _is_busy(thread: threading.Thread) -> bool:
    """Not an idle thread of an executor: Python ends these after all exit handlers of `threading`."""
    executors, frame = sys.modules.get("concurrent.futures.thread"), sys._current_frames().get(thread.ident or 0)
    worker = getattr(executors, "_worker", None)
    return frame is None or worker is None or frame.f_code is not worker.__code__


def _stuck_at() -> str:
    """Where the main thread is. Of an exit handler the place that called the code that waits, because Python keeps no record of
    the task that registered it."""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident or 0)
    if frame is not None and frame.f_code is leave.__code__:
        return f"{_AT_EXIT} that waits in C code"
    while frame is not None and frame.f_back is not None and frame.f_back.f_code is not leave.__code__:
        frame = frame.f_back
    if frame is None or frame.f_back is None or frame.f_globals.get("__name__") == __name__:
        return _place(ident)
    return f"{_AT_EXIT} {frame.f_code.co_qualname} at {frame.f_code.co_filename}:{frame.f_lineno}"


def _described_child(child: Any) -> str:
    from sexton.handlers.python import left_children

    tasks = left_children.tasks_of(child)
    return f"{child.name} (pid {child.pid})" + (f", left by {' or '.join(tasks)}" if tasks else "")


def _described(thread: threading.Thread) -> str:
    from sexton.handlers.python import left_threads

    tasks = left_threads.tasks_of(thread)
    left_by = f", left by {' or '.join(tasks)}" if tasks else ""
    return f"{thread.name} at {_place(thread.ident)}{left_by}"


def _place(ident: int | None) -> str:
    frame = sys._current_frames().get(ident or 0)
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _end(code: int) -> None:
    with suppress(BaseException):
        for child in _children():
            child.kill()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(code)
