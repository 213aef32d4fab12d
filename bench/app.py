"""The app whose workers are measured: `python -m sexton worker bench.app:app`."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from sexton import App

from . import overrides, record

PAD = "x" * 180  # makes a payload of about 200 bytes


async def note(ctx: Any, number: int, pad: str) -> None:
    """The no-op job: records that it has started."""
    record.append(number)


async def nap(ctx: Any, number: int, pad: str) -> None:
    """Runs until its worker is killed."""
    record.append(number)
    await asyncio.sleep(600)


async def doze(ctx: Any, number: int, span_s: float, pad: str) -> None:
    """Records that it has started, and holds its slot for a moment."""
    record.append(number)
    await asyncio.sleep(span_s)


def fatal(ctx: Any) -> None:
    """Ends the process of its worker."""
    os._exit(3)


if os.environ.get("BENCH_PLAIN_CLAIM"):  # this imports modules of the product, which other commits may have elsewhere
    from . import claim_without_tenants

    claim_without_tenants.install()
overrides.install()
app = App()
app.task(note)
app.task(doze)
app.task(fatal)
app.task(timeout=0)(nap)
