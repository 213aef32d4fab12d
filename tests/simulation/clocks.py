"""Time in a simulated cluster: the database's clock, which decides, and one clock per process, which no service may trust."""

from __future__ import annotations

from datetime import datetime, timedelta

from sexton.clock import Clock, ManualClock


class UnsteadyClock(ManualClock):
    def step(self, span: timedelta) -> None:
        """Sets the database's clock; the monotonic clocks do not change."""
        self._now += span


class NodeClock:
    """The clocks of one process: its monotonic clock began at some value of its own, and its wall clock may be set at any
    time."""

    def __init__(self, world: Clock, booted_s: float) -> None:
        self._world, self._booted_s = world, booted_s
        self.wrong_by = timedelta()

    def monotonic(self) -> float:
        return self._world.monotonic() - self._booted_s

    def database_now(self) -> datetime | None:
        return self._world.database_now()

    def wall(self) -> datetime:
        now = self._world.database_now()
        assert now is not None
        return now + self.wrong_by
