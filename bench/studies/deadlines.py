"""What calls the timeouts of a worker's handlers: a timer of the event loop for each, a heap, or a wheel (docs/adr/030).

Nearly all are cancelled, because nearly all handlers end in time. So the figure is the CPU to add one and to cancel it, while
others are waiting, and the memory of those that were cancelled in the last 30 s.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

import psutil
import uvloop

from sexton.clock import SystemClock
from sexton.worker.deadlines import Deadlines

from .testbed import tell

TIMEOUT_S = 30.0
ALIVE = (1, 100, 10_000)
ADDED = 50_000
KEPT = 500_000  # added and cancelled by a worker within one timeout, at 17,000 runs per second
TURN = 200  # of them in one turn of the event loop, which may drop what was cancelled
REPETITIONS = 7


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...


class Entry:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None] | None) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None


class Heap:
    """Cancelled entries stay until their time comes: each would be looked for otherwise."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Entry]] = []
        self._serial = count()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Entry:
        entry = Entry(callback)
        heapq.heappush(self._entries, (time.monotonic() + delay, next(self._serial), entry))
        return entry


class Run:
    def time_out(self) -> None:
        raise AssertionError("nothing is due in this study")


def add_and_cancel(timers: Timers, alive: int) -> float:
    """µs of CPU for each."""
    waiting = deque(timers.call_later(TIMEOUT_S, Run().time_out) for _ in range(alive))
    began_s = time.process_time()
    for _ in range(ADDED):
        waiting.append(timers.call_later(TIMEOUT_S, Run().time_out))
        waiting.popleft().cancel()
    took_s = time.process_time() - began_s
    while waiting:
        waiting.popleft().cancel()
    return took_s / ADDED * 1e6


async def kept_mib(timers: Timers) -> float:
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    for number in range(KEPT):
        timers.call_later(TIMEOUT_S, Run().time_out).cancel()
        if number % TURN == 0:
            await asyncio.sleep(0)
    return float(process.memory_info().rss - before) / 2**20


async def _study(loop_name: str) -> None:
    loop = asyncio.get_running_loop()
    made: dict[str, Callable[[], Timers]] = {
        f"timer of {loop_name}": lambda: loop,
        f"wheel on {loop_name}": lambda: Deadlines(loop, SystemClock()),
        "heap": Heap,
    }
    for alive in ALIVE:
        took_us: dict[str, list[float]] = {name: [] for name in made}
        for _ in range(REPETITIONS):
            for name, make in made.items():
                took_us[name].append(add_and_cancel(make(), alive))
                await asyncio.sleep(0)  # a loop drops its cancelled timers
        for name, each in took_us.items():
            tell(structure=name, alive=alive, us=round(statistics.median(each), 2))
    for name, make in made.items():
        tell(structure=name, kept_mib=round(await kept_mib(make()), 1))


def main() -> None:
    for name, factory in (("asyncio", asyncio.SelectorEventLoop), ("uvloop", uvloop.Loop)):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_study(name))


if __name__ == "__main__":
    main()
