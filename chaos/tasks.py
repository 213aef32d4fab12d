"""Tasks for workers in process tests and chaos. Each task writes what it does to the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from sexton import App, Context
from tests.process.journal import note

OFTEN = 1_000

Defined = tuple[Callable[..., Any], dict[str, Any]]


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


def app_of(tasks: Sequence[Defined], database_url: str | None = None) -> App:
    """The same app for both sides: with a URL for the submitter, without for the worker, which reads its settings."""
    made = App(database_url)
    for function, options in tasks:
        made.task(**options)(function)
    return made
