"""`python -m chaos.upgrade.submitter NAME SECONDS JOBS`: submits by the SDK of the release whose Python runs it, until SIGTERM.

Prints one line per acknowledged job: its kind and its id. Jobs of the kind `shared` have the same idempotency keys in both
releases, so both submit the same job. Settings come from the environment. Uses only public names."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal

from sexton import App, Request

from .app import app

BATCH = 15
PACE_S = 0.2  # between two batches: about 75 jobs a second
SLOW_PACE_S = 0.5  # after the requested number of jobs: on a slow machine the rest only keeps the services busy
SHARED = 10
SCHEDULES: tuple[Literal["skip", "queue", "parallel", "replace"], ...] = (
    "skip",
    "queue",
    "parallel",
    "replace",
)  # one per overlap policy, each fires every second


async def main(name: str, seconds: int, jobs: int) -> None:
    """`seconds`: how long its schedules fire. `jobs`: how many it submits at full rate."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    rng = Random(name)
    async with app:
        await _schedule(app, name, seconds)
        shared = [app.request("nap", {"seconds": 0.01}, key=f"shared-{number}") for number in range(SHARED)]
        _say("shared", [job.id for job in await app.submit_many(shared)])
        while not stopped.is_set():
            _say("once", [job.id for job in await app.submit_many(_some(app, rng))])
            jobs -= BATCH
            await asyncio.sleep(PACE_S if jobs > 0 else SLOW_PACE_S)


async def _schedule(to: App, name: str, seconds: int) -> None:
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    for overlap in SCHEDULES:
        made = await to.schedule(
            "nap",
            {"seconds": 0.05},
            name=f"{name}-{overlap}",
            every=1,
            anchor_at=begin,
            start_at=begin,
            end_at=begin + timedelta(seconds=seconds),
            overlap=overlap,
            catch_up={"policy": "all", "window": "10m"},
        )
        _say("schedule", [made.id])


def _some(to: App, rng: Random) -> list[Request]:
    """Most jobs are due at once. Some are due later, some fail the first time, some wait for one of three slots."""
    return [_one(to, rng, rng.random()) for _ in range(BATCH)]


def _one(to: App, rng: Random, drawn: float) -> Request:
    nap = {"seconds": round(rng.uniform(0, 0.1), 3)}
    if drawn < 0.6:
        return to.request("nap", nap)
    if drawn < 0.8:
        return to.request("nap", nap, delay=round(rng.uniform(0.2, 2.0), 2))
    if drawn < 0.9:
        return to.request("flaky")
    return to.request("nap", {"seconds": 0.01}, limit={"key": "three", "running": 3})


def _say(kind: str, ids: list[object]) -> None:
    print("\n".join(f"{kind} {job_id}" for job_id in ids), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
