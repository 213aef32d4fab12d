"""The demo app of `sexton dev` without an argument: one task for each thing that a job can do."""

from __future__ import annotations

import asyncio
from typing import Any

from sexton.client.app import App
from sexton.clock import SystemClock
from sexton.domain.retry import Retry
from sexton.errors import PermanentError
from sexton.handlers.context import Context

LONG = "10m"  # the longest runtime of a demo task
_SPIN = 20_000  # rounds between two readings of the clock: about a millisecond

app = App()


@app.task(name="demo.noop")
async def noop(ctx: Context, /) -> None:
    """Does nothing, as fast as possible."""


@app.task(name="demo.echo")
async def echo(ctx: Context, /, **payload: Any) -> dict[str, Any]:
    """Returns its payload."""
    return payload


@app.task(name="demo.sleep", timeout=LONG)
async def sleep(ctx: Context, /, seconds: float = 1.0) -> dict[str, float]:
    """Sleeps; a cancel wakes it at once."""
    await asyncio.sleep(_checked("seconds", seconds))
    return {"slept_s": seconds}


@app.task(name="demo.fail", retry=Retry.exponential(base="1s", max="5s", max_attempts=5))
async def fail(ctx: Context, /, times: int | None = None, permanent: bool = False) -> dict[str, int]:
    """Fails that many `times` and then succeeds; without `times`, fails always; with `permanent`, is not retried."""
    if permanent:
        raise PermanentError("this error is permanent, as requested")
    if times is None or ctx.attempt <= _checked("times", times):
        raise RuntimeError(f"attempt {ctx.attempt} fails, as requested")
    return {"attempts": ctx.attempt}


@app.task(name="demo.cpu", process=True, timeout=LONG)
def cpu(ctx: Context, /, seconds: float = 1.0) -> dict[str, int]:
    """Keeps one core busy, in its own process, where it does not delay other jobs."""
    clock, rounds = SystemClock(), 0
    end = clock.monotonic() + _checked("seconds", seconds)
    while clock.monotonic() < end:
        ctx.check_cancelled()
        for _ in range(_SPIN):
            rounds += 1
    return {"rounds": rounds}


@app.task(name="demo.progress", timeout=LONG)
async def progress(ctx: Context, /, steps: int = 5, seconds: float = 5.0) -> dict[str, int]:
    """Works in steps, and reports each step in its progress and its output."""
    pause_s = _checked("seconds", seconds) / max(_checked("steps", steps), 1)
    for step in range(1, int(steps) + 1):
        await asyncio.sleep(pause_s)
        ctx.log(f"step {step} of {steps} is done")
        ctx.progress(step / steps, f"{step} of {steps}")
    return {"steps": steps}


def _checked(name: str, number: object) -> float:
    """Another attempt would get the same argument."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1_000_000:
        raise PermanentError(f"{name}: {number!r} is not a number from 0 to 1,000,000")
    return number
