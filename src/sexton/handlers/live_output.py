"""A handler's last progress and its log so far. Bounded in size, written from any thread, read by the worker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from sexton.clock import SystemClock
from sexton.domain.outcome import storable

OUTPUT_LIMIT = 64 * 1024  # bytes of UTF-8, like all limits here
HEAD_LIMIT = 16 * 1024
MARK_LIMIT = 64
TAIL_LIMIT = OUTPUT_LIMIT - HEAD_LIMIT - MARK_LIMIT
LINE_LIMIT = 4 * 1024  # including the newline

_clock = SystemClock()


class LiveOutput:
    """`changed` is true from a write until the worker takes it."""

    __slots__ = ("_lock", "_monotonic", "_output", "changed", "last_written_at", "progress_json")

    def __init__(self, monotonic: Callable[[], float] = _clock.monotonic) -> None:
        self.changed = False
        self.last_written_at = monotonic()
        self.progress_json: msgspec.Raw | None = None
        self._output: Output | None = None
        self._monotonic = monotonic
        self._lock = threading.Lock()

    @property
    def output(self) -> str | None:
        with self._lock:
            return None if self._output is None else str(self._output)

    def take(self) -> tuple[msgspec.Raw | None, str | None]:
        """Progress and output, for the worker to store. Any later write sets `changed` again."""
        self.changed = False
        return self.progress_json, self.output

    def is_alive(self) -> None:
        self.last_written_at = self._monotonic()

    def progressed(self, progress: msgspec.Raw) -> None:
        self.progress_json = progress
        self._mark_changed()

    def logged(self, text: str) -> None:
        with self._lock:
            self._output = self._output or Output()
            for line in storable(text).split("\n"):
                self._output.add(line)
        self._mark_changed()

    def _mark_changed(self) -> None:
        # Set after the write: a reader that clears the flag too early only reads the same text twice.
        self.last_written_at = self._monotonic()
        self.changed = True


class Output:
    """Lines up to `OUTPUT_LIMIT`: the first ones, which show the start, and the newest."""

    __slots__ = ("_head", "_head_room", "_left_out", "_tail", "_tail_room")

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_room = HEAD_LIMIT
        self._tail: deque[tuple[str, int]] = deque()
        self._tail_room = TAIL_LIMIT
        self._left_out = 0

    def add(self, line: str) -> None:
        encoded = line.encode()
        if len(encoded) >= LINE_LIMIT:
            line = encoded[: LINE_LIMIT - len("…\n".encode())].decode(errors="ignore") + "…"
            encoded = line.encode()
        size = len(encoded) + len("\n")
        if size <= self._head_room:
            self._head.append(line)
            self._head_room -= size
            return
        self._head_room = 0  # no later line may go before the ones already in the tail
        self._tail.append((line, size))
        self._tail_room -= size
        while self._tail_room < 0:
            self._tail_room += self._tail.popleft()[1]
            self._left_out += 1

    def __str__(self) -> str:
        mark = [f"… {self._left_out} lines omitted …"] if self._left_out else []
        return "\n".join([*self._head, *mark, *(line for line, _ in self._tail)])
