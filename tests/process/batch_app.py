"""An app with a batch task, for workers of these tests."""

from __future__ import annotations

import asyncio

import msgspec

from sexton import App, Batch, BatchContext, Run

app = App()


class Item(msgspec.Struct):
    n: int
    bad: bool = False


@app.task(batch=Batch(16, wait="100ms"))
async def store(ctx: BatchContext, runs: list[Run[Item]]) -> list[int]:
    """Large calls take a moment, so that a test can kill the worker meanwhile."""
    if len(runs) == 16:
        await asyncio.sleep(0.5)
    if any(run.args.bad for run in runs):
        raise ValueError("one of them is bad")
    return [run.args.n for run in runs]
