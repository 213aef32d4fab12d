"""The output of a script: split into lines, forwarded live, with bounded memory and bounded work for any amount."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from sexton.domain.job import RESULT_BYTES_LIMIT
from sexton.handlers.redaction import HIDDEN

PENDING_LIMIT = 256 * 1024  # bytes waiting to be forwarded; above it the oldest are dropped
KEPT_LIMIT = 128 * 1024  # kept after a drop; more than a result may have
PASS_ON_S = 0.05
# Each line costs the event loop one or two microseconds: of very many short lines, most are only counted.
LINES_AT_ONCE = 8_192
LINES_PER_S = 20_000
LINES_ALWAYS = 100
BURST_LIMIT = 4 * 1024 * 1024  # bytes read between two forwards: a script that prints faster has to wait


class Lines:
    """Received lines that were not yet taken. If there are too many, whole lines are dropped from the front and counted."""

    __slots__ = ("_is_torn", "_left_out", "_pending", "_secrets", "last")

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        """`secrets` are redacted if the script prints them."""
        self.last = b""  # the last non-empty line taken
        self._secrets = [secret.encode() for secret in secrets]
        self._pending = bytearray()
        self._left_out = 0
        self._is_torn = False  # the start of the first pending line was dropped

    def add(self, data: bytes) -> None:
        pending = self._pending
        pending += data
        if len(pending) <= PENDING_LIMIT:
            return
        newline = pending.find(b"\n", len(pending) - KEPT_LIMIT)
        end = len(pending) - KEPT_LIMIT if newline < 0 else newline + 1
        self._left_out += pending.count(b"\n", 0, end)
        self._is_torn = newline < 0
        del pending[:end]

    def take(self, line_limit: int = LINES_AT_ONCE, *, at_end: bool = False) -> list[str]:
        """The complete lines; at the end, also an incomplete one. Above the limit, only the newest."""
        pending = self._pending
        end = len(pending) if at_end else pending.rfind(b"\n") + 1
        if end == 0:
            return []
        taken = bytes(pending[:end]).removesuffix(b"\n")
        del pending[:end]
        for secret in self._secrets:
            taken = taken.replace(secret, HIDDEN.encode())
        lines = taken.split(b"\n")
        if self._is_torn:
            lines[0] = b"\xe2\x80\xa6" + lines[0]
            self._is_torn = False
        self.last = next((line for line in reversed(lines) if line.strip()), self.last)
        self._left_out += max(len(lines) - line_limit, 0)
        mark = [f"… {self._left_out:,} lines omitted …"] if self._left_out else []
        self._left_out = 0
        return [*mark, *map(_shown, lines[-line_limit:])]


class Listener(asyncio.Protocol):
    """One of a script's two output streams. `closed` is done when no more output can come."""

    def __init__(self, log: Callable[[str], None], secrets: Sequence[str] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._lines = Lines(secrets)
        self._transport: asyncio.ReadTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._burst = 0
        self._line_room = LINES_AT_ONCE
        self._is_paused = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def result(self) -> Any:
        """The last line, if it is a JSON object or array within the size limit of results; else `None`."""
        line = self._lines.last.strip()
        if line[:1] not in (b"{", b"[") or len(line) > RESULT_BYTES_LIMIT:
            return None
        try:
            return msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None

    def last_words(self) -> str:
        return _shown(self._lines.last.strip())

    def close(self) -> None:
        """Stops reading, even if a process still writes."""
        if self._transport is None:
            self.closed.cancel()
        else:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._lines.add(data)
        self._burst += len(data)
        if self._timer is None:
            self._forward()  # the first output at once
            self._timer = self._loop.call_later(PASS_ON_S, self._tick)
        elif self._burst >= BURST_LIMIT and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._forward(at_end=True)
        if not self.closed.done():
            self.closed.set_result(None)

    def _tick(self) -> None:
        self._timer = None
        if self._burst == 0:
            return
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        self._line_room = min(self._line_room + int(LINES_PER_S * PASS_ON_S), LINES_AT_ONCE)
        self._forward()
        self._timer = self._loop.call_later(PASS_ON_S, self._tick)

    def _forward(self, *, at_end: bool = False) -> None:
        self._burst = 0
        lines = self._lines.take(max(self._line_room, LINES_ALWAYS), at_end=at_end)
        if lines:
            self._line_room -= len(lines)
            self._log("\n".join(lines))


def _shown(line: bytes) -> str:
    """As a terminal would show it: of a progress bar that overwrites itself, the last state."""
    return line.removesuffix(b"\r").rpartition(b"\r")[2].decode("utf-8", "backslashreplace")
