"""What takes long is done seldom. Looking through all that runs takes a millisecond, as a rule; while somebody holds an old
snapshot it goes through everything that ever ran since, and must not become all that the database does."""

from __future__ import annotations

SHARE = 20  # at most one part in this many of the time
PATIENCE_S = 60.0  # but no later than this


class DutyCycle:
    def __init__(self, rest_s: float = 0.0) -> None:
        """`rest_s` lies between two in any case."""
        self._rest_s = rest_s
        self._ended_s = float("-inf")
        self.took_s = 0.0  # the last time

    def is_due(self, now_s: float) -> bool:
        return now_s - self._ended_s >= max(self._rest_s, min(SHARE * self.took_s, PATIENCE_S))

    def note(self, began_s: float, ended_s: float) -> None:
        self.took_s, self._ended_s = ended_s - began_s, ended_s
