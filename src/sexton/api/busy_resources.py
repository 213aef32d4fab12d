"""What another transaction has held recently (rule "a waiting caller leaves the group"): a caller that needs it waits apart at
once, and no connection that others need meets the lock again."""

from __future__ import annotations

from collections.abc import Hashable

from sexton.clock import Clock

BUSY_S = 10.0  # a key or row counts as busy for this long after a caller last met its lock
BUSY_LIMIT = 10_000  # keys and rows remembered; the oldest is forgotten first

LockedResource = tuple[Hashable, ...]  # what another transaction holds: its kind, then what identifies it


class BusyResources:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[LockedResource, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def __contains__(self, resource: LockedResource) -> bool:
        until = self._until.get(resource)
        return until is not None and until > self._clock.monotonic()

    def remember(self, resource: LockedResource) -> None:
        if len(self._until) >= BUSY_LIMIT:
            del self._until[next(iter(self._until))]
        self._until.pop(resource, None)
        self._until[resource] = self._clock.monotonic() + BUSY_S

    def forget(self, resource: LockedResource) -> None:
        self._until.pop(resource, None)
