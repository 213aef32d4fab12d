"""Timeouts that expire when the simulation moves its clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from sexton.clock import Clock


class ManualTimers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, ManualTimer]] = []
        self._serial = count()

    def call_later(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._heap, (self._clock.monotonic() + delay, next(self._serial), timer))
        return timer

    def fire(self) -> None:
        while self._heap and self._heap[0][0] <= self._clock.monotonic():
            _, _, timer = heapq.heappop(self._heap)
            timer.fire()


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()
