"""Runs expensive scans less often. A scan of all running runs usually takes a millisecond. While a transaction holds an old
snapshot, the scan also reads every row that died since then, and it must not use up the database."""

from __future__ import annotations

SHARE = 20  # a scan may take at most 1/20 of the time
PATIENCE_S = 60.0  # but the next scan is never later than this


class DutyCycle:
    def __init__(self, rest_s: float = 0.0) -> None:
        """`rest_s` is the shortest time between two scans."""
        self._rest_s = rest_s
        self._ended_s = float("-inf")
        self.took_s = 0.0  # by the last scan

    def is_due(self, now_s: float) -> bool:
        return now_s - self._ended_s >= max(self._rest_s, min(SHARE * self.took_s, PATIENCE_S))

    def note(self, began_s: float, ended_s: float) -> None:
        self.took_s, self._ended_s = ended_s - began_s, ended_s
