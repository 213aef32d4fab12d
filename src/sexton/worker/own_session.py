"""The session that a worker announces with its heartbeats, and what it must do when that ends: the worker's side of rule
"dead only when watched".

Sweepers may declare the worker dead 1 s after its session has ended. So within that second, by its own clock, it announces
another one, or stops its handlers. It learns of the end at once, because no proxy between it and the server can end only one
side of the connection (`sexton.own_session`).
"""

from __future__ import annotations

from sexton.clock import Clock
from sexton.domain.run import Lease
from sexton.store.database import ClientEnd

ASK_AFTER_S, FORCE_AFTER_S = 0.4, 0.7  # before AWAY_S of scheduler/ended_sessions.py has passed
WATCH_AFTER_S = (ASK_AFTER_S + 0.01, FORCE_AFTER_S + 0.01)
# The server itself ends the session of a silent host after 8 s (its keepalive), and the host is not told. A worker with a
# longer lease would still execute something then, so it announces nothing.
LEASE_S_MAX = 9.0


class OwnSession:
    def __init__(self, *, lease_s: float, clock: Clock) -> None:
        self._lease_s, self._clock = lease_s, clock
        self._announced: set[int] = set()  # connections that sweepers may know; more than one while a reply is outstanding
        self._ended_at: float | None = None  # the first of them, since the last answer
        self.is_over = False  # the session ended after its last reply arrived

    def announcing(self, end: ClientEnd | None) -> ClientEnd | None:
        """What the next heartbeat announces. It counts from now on, because its reply may be lost."""
        if end is None or self._lease_s > LEASE_S_MAX:
            return None
        self._announced.add(end.number)
        return end

    def answered(self, announced: ClientEnd | None, *, is_announced: bool) -> None:
        """The database has the session of this heartbeat, and no other."""
        self.is_over = announced is not None and announced.number not in self._announced
        self._announced = {announced.number} if announced is not None and is_announced and not self.is_over else set()
        self._ended_at = self._ended_at if self.is_over else None

    def ended(self, number: int) -> bool:
        """True if a heartbeat is urgent: at the first end since the last answer. The next ones wait for their backoff."""
        if number not in self._announced:
            return False
        self._announced.discard(number)
        if self._ended_at is not None:
            return False
        self._ended_at = self._clock.monotonic()
        return True

    def server_is_down(self) -> None:
        """All sessions have ended, also those of the sweepers: no worker is declared dead because of it."""
        self._announced.clear()
        self._ended_at = None

    @property
    def should_ask(self) -> bool:
        return self._away_s >= ASK_AFTER_S

    @property
    def should_force(self) -> bool:
        return self._away_s >= FORCE_AFTER_S

    @property
    def _away_s(self) -> float:
        return 0.0 if self._ended_at is None else self._clock.monotonic() - self._ended_at


def may_be_taken_early(lease: Lease) -> bool:
    """While a worker holds another run, sweepers wait for its lease: `declare_lost` in store/fleet/workers.sql."""
    return not lease.at_most_once and lease.policy.lease_s is None
