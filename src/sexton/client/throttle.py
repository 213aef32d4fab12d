"""Holds back wake-ups that would tell workers nothing new.

Every commit that notifies takes a lock on the whole cluster. So one process notifies a queue at most about every 10 ms: a
worker that was woken looks once more a little later than that (`LAST_LOOK_S` of its intake), and finds what came meanwhile.
A submission may rely on that only if it has committed within the window, counted from before the notifying statement was
sent; whoever comes back later than that notifies after all. Nothing waits for the next poll.
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
        """Whether workers of all these queues will look again after this very moment."""
        oldest = self.now() - WINDOW_S
        return all(self._notified_at.get(queue, float("-inf")) > oldest for queue in queues)

    def notified(self, queues: Collection[str], at: float) -> None:
        """To be told only after the commit: what was rolled back has woken nobody."""
        self._notified_at.update(dict.fromkeys(queues, at))
