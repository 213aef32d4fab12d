"""The tasks that the workers under chaos run. Each writes to the journal what it does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from sexton import App, Context, Retry
from tests.process.journal import DIRECTORY_VARIABLE as FOLDER
from tests.process.journal import note

from .stalls import write_down

OFTEN = 1_000
EFFECTS = "CREATE TABLE public.effects (run_id uuid NOT NULL)"  # no key: a second effect must be seen, not refused


async def nap(ctx: Context, seconds: float = 0.0) -> float:
    await note("start", ctx)
    if seconds:
        await asyncio.sleep(seconds)
    await note("end", ctx)
    return seconds


async def flaky(ctx: Context) -> int:
    await note("start", ctx)
    if ctx.attempt == 1:
        raise ConnectionError("the first attempt always fails")
    await note("end", ctx)
    return ctx.attempt


async def effect(ctx: Context) -> None:
    """The effect and the end of the run commit together."""
    await note("start", ctx)
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO public.effects (run_id) VALUES ($1)", ctx.run_id)


async def once(ctx: Context, seconds: float = 0.0) -> None:
    """At most once: better not at all than twice."""
    await nap(ctx, seconds)


# A fault may last longer than any plain retry budget: nothing here may end in the dead letters but what is at most once.
_PATIENT = Retry.exponential(base="300ms", max="3s", max_attempts=200)
_TASKS: list[tuple[Any, dict[str, Any]]] = [
    (nap, {"timeout": 0, "max_lost": OFTEN}),
    (flaky, {"timeout": "30s", "max_lost": OFTEN, "retry": Retry.exponential(base="200ms", max="1s", max_attempts=20)}),
    (effect, {"timeout": "30s", "max_lost": OFTEN, "retry": _PATIENT}),
    (once, {"timeout": 0, "delivery": "at_most_once"}),
]


def make(database_url: str | None = None) -> App:
    """The same app on both sides: with a URL for the harness that submits, without for the worker that reads its settings."""
    made = App(database_url)
    for function, options in _TASKS:
        made.task(**options)(function)
    return made


if FOLDER in os.environ:  # in a worker, not in the harness
    write_down(Path(os.environ[FOLDER]))
app = make()
