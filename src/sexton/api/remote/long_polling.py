"""Where workers that speak HTTP wait for something to be ready, without a database connection of their own.

One look per process serves all who wait, and hints come in between where the way to the database is direct. Those who ask for
the same are interchangeable: of each such group one is woken, and if it found as much as it could take, it wakes the next. So
a thousand idle workers cost no more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.service import Wake, repeat
from sexton.store.database import Postgres
from sexton.store.fleet import remote_workers
from sexton.store.postgres.wakeups import READY, Listener
from sexton.telemetry.events import Emit

POLL_S = 0.5
POLL_BLIND_S = 0.25  # where no hint can come
LINGER_S = 60.0  # it goes on that long after the last has left: the next is probably on its way


class Group(NamedTuple):
    """Those who want the same."""

    queues: frozenset[str]
    tasks: frozenset[str]

    @classmethod
    def of(cls, queues: Sequence[str], tasks: Sequence[str]) -> Group:
        return cls(frozenset(queues), frozenset(tasks))


class LongPolling:
    """`run_once` is one look; `repeat` keeps it going from the first who waits until a while after the last."""

    name = "api long_polling"

    def __init__(self, database: Postgres, *, clock: Clock, emit: Emit, dice: Rng, limit: int) -> None:
        self._database, self._clock, self._emit, self._dice = database, clock, emit, dice
        self._limit = limit
        self._waiting: dict[Group, list[asyncio.Future[None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._resting: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def has_room(self) -> bool:
        return self.waiting_count < self._limit

    async def wait(self, group: Group, wait_s: float, gone: asyncio.Future[None]) -> None:
        """Until something may be ready for them, the time is up, whoever asked is gone, or the process stops."""
        if self.closed:
            return
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, []).append(rung)
        self._start()
        try:
            await asyncio.wait([rung, gone], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._forget(group, rung)
        if rung.done() and gone.done():
            self.ring_one(group)  # it rang for somebody who will not look

    def ring(self, queue: str) -> None:
        """Something may be ready in this queue; an empty name is any."""
        for group in list(self._waiting):
            if not queue or queue in group.queues:
                self.ring_one(group)

    def ring_one(self, group: Group) -> None:
        """Whoever of them has waited longest."""
        for rung in self._waiting.get(group, ()):
            if not rung.done():
                rung.set_result(None)
                return

    async def run_once(self) -> float:
        queues = {queue for group in self._waiting for queue in group.queues}
        if queues:
            async with self._database.connection() as connection:
                stirring = await remote_workers.stirring(connection, sorted(queues))
            for queue in stirring:
                self.ring(queue)
        return POLL_S if self._database.direct else POLL_BLIND_S

    def close(self) -> None:
        """Everybody is answered at once."""
        self.closed = True
        for waiting in self._waiting.values():
            for rung in waiting:
                if not rung.done():
                    rung.set_result(None)
        self._stop()

    def _start(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._tasks:
            return
        looking = repeat(self, Wake(), clock=self._clock, emit=self._emit, dice=self._dice)
        self._tasks.append(asyncio.create_task(looking, name=self.name))
        if self._database.direct:
            listener = Listener(self._database.url, [READY], lambda _channel, queue: self.ring(queue))
            self._tasks.append(asyncio.create_task(listener.run(), name=f"{self.name} listener"))

    def _forget(self, group: Group, rung: asyncio.Future[None]) -> None:
        self._waiting[group].remove(rung)
        if not self._waiting[group]:
            del self._waiting[group]
        if not self._waiting and not self.closed:
            self._resting = asyncio.get_running_loop().call_later(LINGER_S, self._stop)

    def _stop(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
