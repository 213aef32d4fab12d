"""Suppresses notifications that workers do not need.

Every commit with a notification takes a lock on the whole cluster. So one process notifies a queue at most about every 10 ms:
a worker that was woken claims once more a little later than that (`LAST_LOOK_S` of its intake), and finds what came meanwhile.
A submission may rely on that only if it commits within the window, counted from before the notifying statement was sent. A
later one notifies. No submission waits for the next poll.
"""

from __future__ import annotations

from collections.abc import Collection

from sexton.clock import Clock

WINDOW_S = 0.01


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notified_at: dict[str, float] = {}

    def now(self) -> float:
        return self._clock.monotonic()

    def covers(self, queues: Collection[str]) -> bool:
        """Whether the workers of all these queues will claim again after this moment."""
        oldest = self.now() - WINDOW_S
        return all(self._notified_at.get(queue, float("-inf")) > oldest for queue in queues)

    def notified(self, queues: Collection[str], at: float) -> None:
        """Call it only after the commit: a rolled-back notification wakes no worker."""
        self._notified_at.update(dict.fromkeys(queues, at))
