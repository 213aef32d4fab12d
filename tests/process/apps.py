"""The tasks that the workers of these tests run. Each task writes what it does to the journal."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time

from chaos.tasks import OFTEN, Defined, app_of, flaky, nap
from sexton import App, Context, Retry

from .journal import jot, note, note_sync


async def tick(ctx: Context, seconds: float) -> None:
    """A nap whose journal line does not wait for the disk, for tests that measure how soon the next one begins."""
    jot("start", ctx)
    await asyncio.sleep(seconds)
    jot("end", ctx)


async def increment(ctx: Context) -> None:
    """The effect and the end of the run are committed together."""
    await note("start", ctx)
    async with ctx.transaction() as connection:
        await connection.execute("UPDATE public.counter SET value = value + 1")


def busy(ctx: Context, seconds: float) -> int:
    """Pure Python code that blocks its thread and never awaits."""
    note_sync("start", ctx)
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        count += 1
    note_sync("end", ctx)
    return count


async def hang(ctx: Context, seconds: float, mark: str) -> str:
    """Blocks the event loop, but only the first time: it creates the file `mark` then."""
    await note("start", ctx)
    is_first = _leave(mark)
    if is_first:
        time.sleep(seconds)  # noqa: ASYNC251  (that is the point)
    await note("end", ctx)
    return "hung" if is_first else "did not hang"


async def block(ctx: Context, seconds: float) -> None:
    """Blocks the event loop every time."""
    jot("block", ctx)
    time.sleep(seconds)  # noqa: ASYNC251  (that is the point)


def leave(ctx: Context) -> None:
    """Ends the process of its worker, as a library that calls `exit()` in C does."""
    jot("poison", ctx)
    os._exit(3)


def crash(ctx: Context) -> None:
    """A segmentation fault in a thread."""
    jot("poison", ctx)
    ctypes.string_at(0)


def devour(ctx: Context) -> None:
    """As a handler that takes all memory: the kernel kills the process by the same signal."""
    jot("poison", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


async def freeze(ctx: Context, seconds: int, mark: str) -> None:
    """Blocks all Python threads, but only the first time: the C function keeps the GIL."""
    jot("freeze", ctx)
    if _leave(mark):
        ctypes.PyDLL(None).sleep(seconds)


def _leave(mark: str) -> bool:
    try:
        with open(mark, "x"):
            return True
    except FileExistsError:
        return False


def polite(ctx: Context) -> None:
    note_sync("start", ctx)
    while not ctx.cancelled:
        time.sleep(0.005)
    note_sync("told", ctx)
    ctx.check_cancelled()


def deaf(ctx: Context, seconds: float) -> None:
    note_sync("start", ctx)
    time.sleep(seconds)
    note_sync("end", ctx)


def child(ctx: Context, seconds: float = 60.0) -> None:
    """In a process of its own that starts a child process, and ignores the request to stop."""
    with subprocess.Popen(["sleep", str(seconds)]) as offspring:
        note_sync("start", ctx, str(offspring.pid))
    note_sync("end", ctx)


_TASKS: list[Defined] = [
    (nap, {"timeout": 0, "max_lost": OFTEN}),
    (tick, {}),
    (increment, {"max_lost": OFTEN, "retry": Retry.after("100ms", "100ms", "100ms", "100ms", "100ms")}),
    (flaky, {"retry": Retry.after("200ms")}),
    (busy, {"timeout": 0}),
    (hang, {"timeout": 0}),
    (block, {"timeout": 0}),
    (leave, {}),
    (crash, {}),
    (devour, {}),
    (freeze, {"timeout": 0}),
    (polite, {"timeout": 0}),
    (deaf, {"timeout": 0}),
    (child, {"timeout": 0, "process": True}),
]


def make(database_url: str | None = None) -> App:
    return app_of(_TASKS, database_url)


app = make()
