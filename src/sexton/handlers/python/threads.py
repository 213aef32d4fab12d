"""Threads for blocking handlers. They are daemon threads, so that a handler that never ends cannot keep the process from
exiting; `concurrent.futures` would wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], Callable[[], None]]
"""Does the work and returns what to do when the thread is free for other work."""


class ThreadSlots:
    """Threads start when needed and then wait for more work. Above `limit`, work waits for a free thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread_count = 0
        self._idle_count = 0  # minus the work that waits for them

    def run(self, work: Work) -> None:
        with self._lock:
            self._work.put(work)
            if self._idle_count > 0:
                self._idle_count -= 1
            elif self._thread_count < self._limit:
                self._thread_count += 1
                threading.Thread(target=self._serve, name=f"sexton-handler-{self._thread_count}", daemon=True).start()

    def close(self) -> None:
        """Idle threads end now, busy ones after their work. Does not wait for them."""
        with self._lock:
            for _ in range(self._thread_count):
                self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            deliver = work()
            with self._lock:
                self._idle_count += 1
            deliver()
            del work, deliver  # an idle thread must not keep the last call's arguments and result alive
