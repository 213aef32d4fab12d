"""Advisory session locks of the schedulers: they belong to a live session, also while its process is paused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sexton.errors import DatabaseUnavailable

from .faults import Crash, Fault

if TYPE_CHECKING:
    from .actors import Actor

KEEPALIVE_S = 6.0  # after this time the server closes a session whose host it cannot reach


class LockTable:
    """The server's view: which session holds which partition."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._holders: dict[int, Actor] = {}

    def held_by(self, actor: Actor) -> frozenset[int]:
        return frozenset(partition for partition, holder in self._holders.items() if holder is actor)

    def drop(self, actor: Actor) -> None:
        """The session has ended."""
        self._holders = {partition: holder for partition, holder in self._holders.items() if holder is not actor}

    def hold(self, actor: Actor, wanted: frozenset[int]) -> frozenset[int]:
        for holder in set(self._holders.values()):
            if holder.cut_off_for_s(self.now_s()) > KEEPALIVE_S:
                self.drop(holder)
        for partition in self.held_by(actor) - wanted:
            del self._holders[partition]
        for partition in sorted(wanted):
            self._holders.setdefault(partition, actor)
        return self.held_by(actor)


class SimulatedLocks:
    """The `Locks` of one scheduler, on a connection of its own that can break like any other."""

    def __init__(self, table: LockTable, actor: Actor, session: int, draw: Callable[[bool], Fault]) -> None:
        self._table, self._actor, self._session, self._draw = table, actor, session, draw

    async def session(self) -> int:
        return self._session

    async def hold(self, wanted: frozenset[int]) -> frozenset[int]:
        fault = self._draw(False)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            raise Crash(fault)
        if fault is not Fault.NONE:
            if not self._actor.cut_off_for_s(
                self._table.now_s()
            ):  # the state of the locks is unknown: close the session, if the server can be reached
                self._table.drop(self._actor)
            raise DatabaseUnavailable(fault)
        return self._table.hold(self._actor, wanted)

    async def close(self) -> None:
        self._table.drop(self._actor)
