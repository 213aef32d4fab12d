"""Tasks that do to their process what no handler should do."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import ctypes
import gc
import locale
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import StringIO
from typing import Any, TextIO

import asyncpg

from chaos.tasks import Defined, app_of
from sexton import App, Context, Retry

LONG_S = 600.0
HOARD_BYTES = 100 * 2**20


async def hello(ctx: Context) -> int:
    return os.getpid()


def hello_in_a_thread(ctx: Context) -> int:
    return os.getpid()


# Exceptions that end a process


def exits(ctx: Context) -> None:
    sys.exit(3)


async def exits_on_the_loop(ctx: Context) -> None:
    sys.exit(3)


async def interrupts(ctx: Context) -> None:
    raise KeyboardInterrupt


async def exits_in_a_task_of_its_own(ctx: Context) -> str:
    """asyncio lets `SystemExit` of a task leave the loop."""

    async def inner() -> None:
        sys.exit(4)

    task = asyncio.create_task(inner())
    await asyncio.sleep(0.1)
    return repr(task.exception())


async def exits_in_a_callback(ctx: Context) -> str:
    asyncio.get_running_loop().call_soon(sys.exit, 5)
    await asyncio.sleep(0.1)
    return "went on"


# The event loop


async def stops_the_loop(ctx: Context) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.1)


async def closes_the_loop(ctx: Context) -> None:
    asyncio.get_running_loop().close()


async def shuts_down_async_generators(ctx: Context) -> None:
    """`asyncio.run` does it at its end. The worker's transactions are async generators."""
    await asyncio.get_running_loop().shutdown_asyncgens()


async def shuts_down_the_executor(ctx: Context) -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


async def sets_an_executor(ctx: Context) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))


async def sets_a_task_factory(ctx: Context) -> None:
    asyncio.get_running_loop().set_task_factory(lambda *_arguments, **_options: 1 / 0)  # type: ignore[arg-type]


async def sets_an_exception_handler(ctx: Context) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_arguments: None)


async def sets_debug_mode(ctx: Context) -> None:
    asyncio.get_running_loop().set_debug(True)


def _cancel_others() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


async def cancels_all_tasks(ctx: Context) -> None:
    _cancel_others()


async def cancels_all_tasks_after_its_end(ctx: Context) -> None:
    asyncio.get_running_loop().call_soon(_cancel_others)


async def cancels_the_service(ctx: Context) -> None:
    """In a context that hides which handler it is."""
    own = asyncio.current_task()

    def cancel() -> None:
        for task in asyncio.all_tasks():
            if task is not own and "guarded" not in repr(task.get_coro()):
                task.cancel()

    contextvars.Context().run(asyncio.get_running_loop().call_soon, cancel)


async def cancels_the_intake(ctx: Context) -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == "sexton intake":
            asyncio.get_running_loop().call_soon(task.cancel, context=contextvars.Context())


async def closes_the_pools(ctx: Context) -> None:
    for pool in [one for one in gc.get_objects() if isinstance(one, asyncpg.Pool)]:
        if pool._loop is asyncio.get_running_loop():  # type: ignore[attr-defined]
            pool.terminate()


async def naps(ctx: Context, nap_s: float) -> str:
    async with asyncio.timeout(LONG_S):
        await asyncio.sleep(nap_s)
    return "rested"


# Forks


def forks(ctx: Context) -> int:
    """Both parent and child return."""
    return os.fork()


async def forks_on_the_loop(ctx: Context) -> int:
    return os.fork()


async def forks_and_yields(ctx: Context) -> int:
    pid = os.fork()
    for _ in range(3):
        await asyncio.sleep(0)
    return pid


async def forks_in_a_task_of_its_own(ctx: Context) -> int:
    async def inner() -> int:
        return os.fork()

    return await asyncio.create_task(inner())


def forks_and_raises(ctx: Context) -> int:
    """How the child ended."""
    pid = os.fork()
    if pid == 0:
        raise ValueError("in the child")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def forks_and_exits(ctx: Context) -> int:
    pid = os.fork()
    if pid == 0:
        sys.exit(6)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # noqa: ASYNC222


def forks_and_signals(ctx: Context) -> int:
    """The child no longer has the worker's signal handlers."""
    pid = os.fork()
    if pid == 0:
        time.sleep(LONG_S)
    while True:
        os.kill(pid, signal.SIGTERM)  # repeatedly: a new process may lose the first signal
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)


def forks_by_multiprocessing(ctx: Context) -> int:
    child = multiprocessing.get_context("fork").Process(target=sum, args=([1, 2],))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


# State of the process


def changes_directory(ctx: Context) -> None:
    os.chdir(tempfile.gettempdir())


def changes_locale(ctx: Context) -> None:
    now = locale.setlocale(locale.LC_NUMERIC)
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8" if now == "C" else "C")


def changes_umask(ctx: Context) -> None:
    os.umask(0)


def changes_stdout(ctx: Context) -> None:
    sys.stdout = StringIO()


def closes_stderr(ctx: Context) -> None:
    sys.stderr.close()


def changes_recursion_limit(ctx: Context) -> None:
    sys.setrecursionlimit(200)


async def changes_signals(ctx: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


async def handles_signals(ctx: Context) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print, "not me")


def _descriptor(stream: TextIO) -> str:
    try:
        return str(stream.fileno())
    except ValueError as error:  # closed, or without one
        return repr(error)


async def process_state(ctx: Context) -> list[str]:
    """What it finds. On the event loop, so that the guard does not look while the umask is read."""
    umask = os.umask(0o77)
    os.umask(umask)
    streams = [_descriptor(stream) for stream in (sys.stdout, sys.stderr)]
    handlers = [repr(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD)]
    return [os.getcwd(), locale.setlocale(locale.LC_ALL), oct(umask), str(sys.getrecursionlimit()), *streams, *handlers]


def changes_in_its_process(ctx: Context) -> list[str]:
    """Returns the state that it found, then changes it."""
    found = [os.getcwd(), str(sys.getrecursionlimit()), str(os.umask(0o77)), type(sys.stdout).__name__, str(os.getpid())]
    os.chdir("/")
    sys.setrecursionlimit(300)
    sys.stdout = StringIO()
    return found


# What they leave running


def leaves_a_thread(ctx: Context) -> None:
    threading.Thread(target=time.sleep, args=(LONG_S,), name="poller", daemon=False).start()


async def leaves_a_thread_from_the_loop(ctx: Context) -> None:
    threading.Thread(target=time.sleep, args=(LONG_S,), name="poller").start()


def leaves_an_executor(ctx: Context) -> None:
    ThreadPoolExecutor(thread_name_prefix="poller").submit(time.sleep, LONG_S)


def leaves_a_child(ctx: Context) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONG_S,), name="sleeper")
    child.start()
    return child.pid


def leaves_an_exit_handler(ctx: Context) -> None:
    atexit.register(time.sleep, LONG_S)


def waits_at_exit() -> None:
    time.sleep(LONG_S)


def leaves_exit_handlers_of_two_kinds(ctx: Context) -> None:
    threading._register_atexit(time.sleep, LONG_S)  # type: ignore[attr-defined]  # as concurrent.futures does
    atexit.register(waits_at_exit)


async def leaves_a_child_of_a_thread(ctx: Context) -> None:
    """The stack of the fork does not show the handler."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONG_S,), name="grandchild")
    await asyncio.to_thread(child.start)


async def ignores_every_cancel(ctx: Context) -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.to_thread(time.sleep, LONG_S)


def hoards_and_fails(ctx: Context) -> None:
    hoard = b"x" * HOARD_BYTES
    raise ValueError(f"{len(hoard)} bytes are too many")


async def blocks_the_loop(ctx: Context, mark: str) -> None:
    with open(mark, "w"):  # noqa: ASYNC230
        time.sleep(LONG_S)  # noqa: ASYNC251


async def waits_in_c(ctx: Context, mark: str) -> None:
    """For ever, in a C call that lets other threads run, and that a signal does not end."""
    with open(mark, "w"):  # noqa: ASYNC230
        library, mutex = ctypes.CDLL(None), (ctypes.c_char * 64)()
        for _ in range(2):
            library.pthread_mutex_lock(mutex)


IN_PROCESS: list[Callable[..., Any]] = [
    hello,
    hello_in_a_thread,
    exits,
    exits_on_the_loop,
    interrupts,
    exits_in_a_task_of_its_own,
    exits_in_a_callback,
    stops_the_loop,
    closes_the_loop,
    shuts_down_async_generators,
    shuts_down_the_executor,
    sets_an_executor,
    sets_a_task_factory,
    sets_an_exception_handler,
    sets_debug_mode,
    cancels_all_tasks,
    cancels_all_tasks_after_its_end,
    cancels_the_service,
    cancels_the_intake,
    closes_the_pools,
    naps,
    forks,
    forks_on_the_loop,
    forks_and_yields,
    forks_in_a_task_of_its_own,
    forks_and_raises,
    forks_and_exits,
    forks_and_signals,
    forks_by_multiprocessing,
    changes_directory,
    changes_locale,
    changes_umask,
    changes_stdout,
    closes_stderr,
    changes_recursion_limit,
    changes_signals,
    handles_signals,
    leaves_a_thread,
    leaves_a_thread_from_the_loop,
    leaves_an_executor,
    leaves_a_child,
    leaves_a_child_of_a_thread,
    leaves_an_exit_handler,
    leaves_exit_handlers_of_two_kinds,
    ignores_every_cancel,
    blocks_the_loop,
    waits_in_c,
    hoards_and_fails,
    process_state,
]

_TASKS: list[Defined] = [(function, {"retry": Retry.never(), "timeout": 0}) for function in IN_PROCESS]
_TASKS.append((changes_in_its_process, {"process": True, "timeout": 0}))


def make(database_url: str | None = None) -> App:
    return app_of(_TASKS, database_url)


app = make()
