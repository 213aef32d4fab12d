"""A circuit breaker per host and worker: after several failures in a row it blocks calls for a while, then lets one probe pass.

Pure: the caller passes the time and the random source.
"""

from __future__ import annotations

from dataclasses import dataclass

from sexton.domain.backoff import doubled_s
from sexton.ids import Rng

JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Patience:
    """When a host counts as down, and how long calls are then blocked: each time twice as long as before."""

    failures: int = 5  # in a row
    rest_s: float = 5.0
    rest_max_s: float = 60.0


PATIENCE = Patience()


class Breaker:
    __slots__ = ("_failures", "_opened", "_patience", "_probing", "_rests_until", "_rng")

    def __init__(self, patience: Patience, rng: Rng) -> None:
        self._patience, self._rng = patience, rng
        self._failures = 0
        self._opened = 0  # times in a row
        self._rests_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Calls are blocked. After the rest, one call at a time may pass."""
        return self._rests_until is not None

    def rest_left_s(self, now: float) -> float:
        """How long to block a call. 0: let it pass; it may be the probe."""
        if self._rests_until is None:
            return 0.0
        if self._probing:
            return max(self._rests_until - now, self._patience.rest_s)
        return max(self._rests_until - now, 0.0)

    def begun(self) -> None:
        """A call that was let through has started."""
        if self._rests_until is not None:
            self._probing = True

    def answered(self) -> None:
        self._failures = self._opened = 0
        self._rests_until, self._probing = None, False

    def failed(self, now: float) -> None:
        self._failures += 1
        is_late = self.is_open and not self._probing  # started before the breaker opened
        if self._failures < self._patience.failures or is_late:
            return
        rest_s = doubled_s(self._patience.rest_s, self._patience.rest_max_s, self._opened)
        self._opened += 1
        self._probing = False
        self._rests_until = now + rest_s * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def undecided(self) -> None:
        """The call ended without a result that tells whether the host is up."""
        self._probing = False
