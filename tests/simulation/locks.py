"""Session locks of the schedulers: held by whoever has a session that lives, also while its process stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sexton.errors import DatabaseUnavailable

from .faults import Crash, Fault

if TYPE_CHECKING:
    from .actors import Actor

KEEPALIVE_S = 6.0  # until the server gives up a session whose host it cannot reach any more


class LockTable:
    """What the server knows: who holds which partition."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._holders: dict[int, Actor] = {}

    def held_by(self, actor: Actor) -> frozenset[int]:
        return frozenset(partition for partition, holder in self._holders.items() if holder is actor)

    def drop(self, actor: Actor) -> None:
        """Its session is gone."""
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
    """The `Locks` of one scheduler, on a connection of its own that breaks like any other."""

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
            ):  # never guess what is held: the session is given up, if the server hears of it
                self._table.drop(self._actor)
            raise DatabaseUnavailable(fault)
        return self._table.hold(self._actor, wanted)

    async def close(self) -> None:
        self._table.drop(self._actor)
