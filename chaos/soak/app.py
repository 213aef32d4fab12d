"""The tasks of a soak: most succeed at once, some fail once, a few always fail, some wait for a limit, some are recurring."""

from __future__ import annotations

import asyncio

from sexton import App, Context, Retry

PAD = "x" * 150
LIMITED = {"key": "soak", "running": 20}


async def note(ctx: Context, number: int, pad: str) -> int:
    return number


async def flaky(ctx: Context, number: int, pad: str) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("the first attempt always fails")
    return number


async def doomed(ctx: Context, number: int, pad: str) -> None:
    raise ValueError("every attempt fails")


async def limited(ctx: Context, number: int, pad: str) -> int:
    await asyncio.sleep(0.02)
    return number


async def tick(ctx: Context) -> None:
    """The task of the recurring jobs."""


def make(database_url: str | None = None) -> App:
    """The same app for both sides: with a URL for the submitter, without for the worker, which reads its settings."""
    made = App(database_url)
    made.task(note)
    made.task(retry=Retry.after("1s"))(flaky)
    made.task(retry=Retry.after("1s"))(doomed)
    made.task(limit=LIMITED)(limited)
    made.task(tick)
    return made


app = make()
