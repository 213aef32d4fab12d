"""Time in a simulated cluster: one that the database decides by, and one per process that nobody may believe."""

from __future__ import annotations

from datetime import datetime, timedelta

from sexton.clock import Clock, ManualClock


class UnsteadyClock(ManualClock):
    def step(self, span: timedelta) -> None:
        """The database's clock is set; nobody's monotonic clock notices."""
        self._now += span


class NodeClock:
    """Of one process: its monotonic clock began at some point of its own, and its wall clock may be set at any time."""

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
