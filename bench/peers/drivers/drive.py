"""One process of one peer: `python -m bench.peers.drivers.drive PEER COMMAND [ARGUMENT...]`. It prints one line of JSON.

The commands: setup; submit N; warm; trickle N; at N LEAD_S SPAN_S; `work`, and the driver's other commands, which run until
killed.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

PAD = "x" * 180  # makes a payload of about 200 bytes
SPACING_S = (0.020, 0.050)  # as in the scenario latency
WARM_UPS = 20

Payload = dict[str, Any]
T = TypeVar("T")


class Client(Protocol):
    """The submitting side; it is already connected."""

    async def setup(self) -> None: ...

    async def submit(self, payloads: Sequence[Payload]) -> None:
        """Submits in bulk, if the peer has a call for it."""

    async def submit_one(self, payload: Payload) -> None: ...

    async def submit_at(self, jobs: Sequence[tuple[Payload, float]]) -> None:
        """Submits each job with the time at which it is due."""


class Driver(Protocol):
    def client(self) -> AbstractAsyncContextManager[Client]: ...

    def work(self) -> None: ...


def url() -> str:
    return os.environ["BENCH_URL"]


def settings() -> dict[str, Any]:
    """The driver's commands that the catalogue names."""
    found: dict[str, Any] = json.loads(os.environ["BENCH_SETTINGS"])
    return found


def payload(number: int) -> Payload:
    return {"number": number, "pad": PAD}


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def call(driver: Driver, command: str, arguments: Sequence[str]) -> dict[str, Any]:
    async with driver.client() as client:
        match command, arguments:
            case "setup", []:
                await client.setup()
                return {}
            case "warm", []:
                await client.submit_one(payload(-1))
                return {}
            case "submit", [count]:
                return await _submit(client, int(count))
            case "trickle", [count]:
                return await _trickle(client, int(count))
            case "at", [count, lead_s, span_s]:
                return await _at(client, int(count), float(lead_s), float(span_s))
            case _:
                raise SystemExit(f"no such command: {command} {' '.join(arguments)}")


async def _submit(client: Client, count: int) -> dict[str, Any]:
    payloads = [payload(number) for number in range(count)]
    began_at = time.perf_counter()
    await client.submit(payloads)
    return {"submit_s": time.perf_counter() - began_at}


async def _trickle(client: Client, count: int) -> dict[str, Any]:
    for _ in range(WARM_UPS):
        await client.submit_one(payload(-1))
        await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)
    rng = random.Random(0)
    calls = []
    for number in range(count):
        called_at = time.time()
        await client.submit_one(payload(number))
        calls.append((called_at, time.time()))
        await asyncio.sleep(rng.uniform(*SPACING_S))
    return {"calls": calls}


async def _at(client: Client, count: int, lead_s: float, span_s: float) -> dict[str, Any]:
    base = time.time() + lead_s
    due = [base + span_s * number / count for number in range(count)]
    await client.submit_at([(payload(number), at) for number, at in enumerate(due)])
    return {"due": due, "submitted_at": time.time()}


def main() -> None:
    name, command, *arguments = sys.argv[1:]
    module = importlib.import_module(f"bench.peers.drivers.{name}")
    endless: Callable[[], None] | None = getattr(module, command, None)
    if endless is not None:
        endless()
    else:
        print(json.dumps(asyncio.run(call(module, command, arguments))))


if __name__ == "__main__":
    main()
