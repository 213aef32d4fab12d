"""Timeouts, limits of progress and grace periods of handlers: a wheel of slots, and one timer of the event loop for all
(docs/adr/030). Most are cancelled long before they are due, so adding and cancelling must be cheap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import ceil
from typing import Protocol

from sexton.clock import Clock

TICKS_PER_S = 32  # at most this much late; a power of two, so that a timeout of whole seconds is exact
EMPTY_SLOTS_LIMIT = 1_000  # in addition to as many as there are slots in use
ALARM_S_MIN = 0.001  # libuv counts in milliseconds, and calls up to half of one too early


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """An event loop is one; tests use their own."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...


class Deadline:
    """A callback in the slot of its tick. It counts while it is there, so cancelling it also releases what it refers to."""

    __slots__ = ("_slot", "callback")

    def __init__(self, slot: Slot, callback: Callable[[], None]) -> None:
        self._slot = slot
        self.callback = callback
        slot[self] = None

    def cancel(self) -> None:
        slot = self._slot
        slot.pop(self, None)
        if not slot:
            slot.clear()  # a dict keeps the memory of its largest size

    def __call__(self) -> None:
        """Does nothing if it was cancelled after its time had come."""
        if self in self._slot:
            del self._slot[self]
            self.callback()


Slot = dict[
    Deadline, None
]  # a set that keeps the order in which they were added: handlers end in the same order in each replay


class Deadlines:
    """`Timers` that are never early, and at most a tick late."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers, self._clock = timers, clock
        self._slots: dict[int, Slot] = {}
        self._ticks: list[int] = []  # of the slots, as a heap
        self._slots_limit = EMPTY_SLOTS_LIMIT
        self._alarm: Timer | None = None  # at the first tick

    def call_later(self, delay: float, callback: Callable[[], None]) -> Deadline:
        tick = ceil((self._clock.monotonic() + delay) * TICKS_PER_S)
        slot = self._slots.get(tick)
        return Deadline(self._open(tick) if slot is None else slot, callback)

    def _open(self, tick: int) -> Slot:
        if len(self._slots) >= self._slots_limit:
            self._drop_empty()
        slot = self._slots[tick] = {}
        heapq.heappush(self._ticks, tick)
        if self._ticks[0] == tick:
            self._wait_for_first()
        return slot

    def _drop_empty(self) -> None:
        """Otherwise cancelled deadlines would stay until their time: a day, if all timeouts are that long."""
        self._slots = {tick: slot for tick, slot in self._slots.items() if slot}
        self._ticks = list(self._slots)
        heapq.heapify(self._ticks)
        self._slots_limit = 2 * len(self._slots) + EMPTY_SLOTS_LIMIT

    def _wait_for_first(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = self._ticks[0] / TICKS_PER_S - self._clock.monotonic()
        self._alarm = self._timers.call_later(max(delay_s, ALARM_S_MIN), self._turn)

    def _turn(self) -> None:
        """Slots whose deadlines were all cancelled are passed over: an idle worker does not wake for them."""
        self._alarm = None
        now = self._clock.monotonic() * TICKS_PER_S
        while self._ticks and (self._ticks[0] <= now or not self._slots[self._ticks[0]]):
            # Each in a callback of its own: an error in one does not keep the others from being called.
            for deadline in tuple(self._slots.pop(heapq.heappop(self._ticks))):
                self._timers.call_later(0.0, deadline)
        if self._ticks:
            self._wait_for_first()
