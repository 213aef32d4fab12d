"""The only module that reads a clock. The database decides what is due; a process only measures time differences."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


def host_now() -> datetime:
    """The time of this machine: only to be compared with the database's time, which decides."""
    return datetime.now(UTC)


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since some fixed point; only differences have a meaning."""

    def database_now(self) -> datetime | None:
        """The current time for statements; `None` lets the database read its own clock, as in production."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def database_now(self) -> datetime | None:
        return None


class ManualClock:
    """A clock that moves only when the test moves it. Statements, leases, timeouts and backoff all use it."""

    def __init__(self, start: datetime) -> None:
        if start.tzinfo is None:
            raise ValueError("start: give an instant with an offset, such as datetime(2026, 3, 1, tzinfo=UTC)")
        self._now = start
        self._elapsed_s = 0.0

    def monotonic(self) -> float:
        return self._elapsed_s

    def database_now(self) -> datetime:
        return self._now

    def move(self, span: timedelta) -> None:
        self._now += span
        self._elapsed_s += span.total_seconds()


class SwitchableClock:
    """A clock that a test may replace while the program runs."""

    def __init__(self, inner: Clock) -> None:
        self.inner = inner

    def monotonic(self) -> float:
        return self.inner.monotonic()

    def database_now(self) -> datetime | None:
        return self.inner.database_now()
