"""Where workers that use HTTP wait for ready runs, without a database connection of their own.

One poll per process serves all waiting workers, and on a direct connection notifications come in between. Workers with the same
request are interchangeable: one of each such group is woken, and if it got as many runs as it could take, it wakes the next. So
a thousand idle workers cost no more than one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
POLL_BLIND_S = 0.25  # behind a pooler, where no notification arrives
QUEUES_LIMIT = 10_000  # whose wake-ups are counted apart: any role that may connect can notify with any name
LINGER_S = 60.0  # it continues for this long after the last worker has left, because one will probably come back


class Group(NamedTuple):
    """Workers with the same request."""

    queues: frozenset[str]
    tasks: frozenset[str]

    @classmethod
    def of(cls, queues: Sequence[str], tasks: Sequence[str]) -> Group:
        return cls(frozenset(queues), frozenset(tasks))


class LongPolling:
    """`run_once` is one poll; `repeat` repeats it from the first waiting worker until a while after the last."""

    name = "api long_polling"

    def __init__(self, database: Postgres, *, clock: Clock, emit: Emit, rng: Rng, limit: int) -> None:
        self._database, self._clock, self._emit, self._rng = database, clock, emit, rng
        self._limit = limit
        self._waiting: dict[Group, list[asyncio.Future[None]]] = {}
        self._heard: Counter[str] = Counter()  # wake-ups by queue; an empty name means any
        self._tasks: list[asyncio.Task[None]] = []
        self._resting: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def has_room(self) -> bool:
        return self.waiting_count < self._limit

    def heard(self, group: Group) -> int:
        """How many wake-ups there were. If the number grows while a worker claims, that worker must claim again: it was not
        waiting, so none of them woke it."""
        return self._heard[""] + sum(self._heard[queue] for queue in group.queues)

    async def wait(self, group: Group, wait_s: float, gone: asyncio.Future[None]) -> None:
        """Until runs may be ready for it, the time is up, the caller is gone, or the process stops."""
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
            self.ring_one(group)  # the wake-up was for a caller that will not claim

    def ring(self, queue: str) -> None:
        """Runs may be ready in this queue; an empty name means any."""
        self._heard[queue if queue in self._heard or len(self._heard) < QUEUES_LIMIT else ""] += 1
        for group in list(self._waiting):
            if not queue or queue in group.queues:
                self.ring_one(group)

    def ring_one(self, group: Group) -> None:
        """Wakes the one of them that has waited longest."""
        for rung in self._waiting.get(group, ()):
            if not rung.done():
                rung.set_result(None)
                return

    async def run_once(self) -> float:
        queues = {queue for group in self._waiting for queue in group.queues}
        if queues:
            async with self._database.connection() as connection:
                with_work = await remote_workers.with_work(connection, sorted(queues))
            for queue in with_work:
                self.ring(queue)
        return POLL_S if self._database.direct else POLL_BLIND_S

    def close(self) -> None:
        """Answers every waiting worker at once."""
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
        looking = repeat(self, Wake(), clock=self._clock, emit=self._emit, rng=self._rng)
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
