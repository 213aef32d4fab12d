"""Shows that the event loop is responsive. The loop writes it, the heartbeat's thread reads it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from sexton.clock import Clock

PULSE_S = 0.25


class Pulse:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.felt_at = clock.monotonic()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0
        self.is_named = False  # the heartbeat's thread has named the handler that blocks the loop
        self.on_feel: Callable[[float], None] = lambda _elapsed_s: None  # called on the loop, with the time since the last one

    def feel(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock.monotonic()
        elapsed_s, self.felt_at = now - self.felt_at, now
        self.loop, self.thread_id = loop, threading.get_ident()
        loop.call_later(PULSE_S, self.feel, loop)
        self.on_feel(elapsed_s)

    def current_task(self) -> asyncio.Task[Any] | None:
        """What the loop executes at this moment. From any thread."""
        return None if self.loop is None else asyncio.current_task(self.loop)
