"""When a scheduler looks beyond the partitions that it leads: rule "any node does overdue work"."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sexton.clock import Clock
from sexton.domain import partition

OVERDUE_S = 2.0  # any scheduler does what a leader leaves undone for this long

Led = Callable[[], Collection[int]]  # the partitions that this node leads now


class OverdueCheck:
    """Overdue work in partitions that other nodes lead, checked about every two seconds, however busy our own partitions
    are."""

    def __init__(self, led: Led, clock: Clock) -> None:
        self._led, self._clock = led, clock
        self._looked_at: float | None = None

    def is_due(self) -> bool:
        """True if a look is due. It then counts as done."""
        now = self._clock.monotonic()
        if len(self._led()) == partition.PARTITION_COUNT:
            return False
        if self._looked_at is not None and now - self._looked_at < OVERDUE_S:
            return False
        self._looked_at = now
        return True
