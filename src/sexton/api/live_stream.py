"""The live stream: one poller per process, only while a client listens, and a bounded queue for each client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Protocol

from sexton.clock import Clock
from sexton.ids import Rng
from sexton.service import Wake, repeat
from sexton.store import clock as database_clock
from sexton.store.database import Database
from sexton.store.views import transitions
from sexton.store.views.transitions import Transition
from sexton.telemetry.events import Emit

POLL_S = 0.25
HEARTBEAT_S = 15.0
QUEUE_LIMIT = 2_000  # transitions that a client may be behind before it is disconnected; it resumes by the id of its last one
AGAIN_S = 1.0  # a resumed stream begins this much before its mark: a transaction may have committed late


class Chosen(Protocol):
    """Which transitions a client wants."""

    def __call__(self, transition: Transition) -> bool: ...


class Listener:
    def __init__(self, chosen: Chosen) -> None:
        self.chosen = chosen
        self.queue: asyncio.Queue[Transition | None] = asyncio.Queue()

    def hear(self, transition: Transition) -> None:
        if self.chosen(transition):
            if self.queue.qsize() >= QUEUE_LIMIT:
                self.leave()
            else:
                self.queue.put_nowait(transition)

    def leave(self) -> None:
        """Ends the stream: the client is too slow, or the process stops."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)
        self.chosen = lambda transition: False


class LiveStream:
    """`run_once` is one poll of the newest transitions; `repeat` repeats it from the first client to the last."""

    name = "api events"

    def __init__(self, database: Database, *, clock: Clock, emit: Emit, rng: Rng) -> None:
        self._database, self._clock, self._emit, self._rng = database, clock, emit, rng
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._mark: datetime | None = None
        self._began_at: datetime | None = None
        self._told: dict[str, datetime] = {}
        self.closed = False

    async def listen(self, chosen: Chosen, resume_at: datetime | None = None) -> AsyncIterator[Transition | None]:
        """Joins before it returns, so every later transition is sent. `None` means that nothing happened for a while."""
        listener = Listener(chosen)
        await self._join(listener)
        try:
            missed = [] if resume_at is None else await self._missed(chosen, resume_at)
        except BaseException:
            self._forget(listener)
            raise
        return self._stream(listener, missed)

    def close(self) -> None:
        """Ends every stream at once."""
        self.closed = True
        for listener in self._listeners:
            listener.leave()
        self._stop()

    async def run_once(self) -> float:
        if self._mark is None or self._began_at is None:
            return POLL_S
        async with self._database.connection() as connection:
            found = await transitions.since(connection, self._mark)
        for transition in found:
            if transition.key not in self._told and transition.at >= self._began_at:
                self._told[transition.key] = transition.at
                for listener in self._listeners:
                    listener.hear(transition)
        if found:
            self._mark = max(self._mark, found[-1].at)
            oldest = self._mark - timedelta(seconds=2 * transitions.OVERLAP_S)
            self._told = {key: at for key, at in self._told.items() if at >= oldest}
        return POLL_S

    async def _join(self, listener: Listener) -> None:
        """One after the other, so that no client joins a poller that is starting or stopping."""
        async with self._starting:
            if self._task is None:
                async with self._database.connection() as connection:
                    self._mark = self._began_at = await database_clock.now(connection, now=self._clock.database_now())
                self._told.clear()
                self._task = asyncio.create_task(
                    repeat(self, Wake(), clock=self._clock, emit=self._emit, rng=self._rng), name=self.name
                )
            self._listeners.add(listener)
            if self.closed:
                self.close()

    async def _missed(self, chosen: Chosen, resume_at: datetime) -> list[Transition]:
        async with self._database.connection() as connection:
            found = await transitions.since(connection, resume_at)
        return [one for one in found if one.at >= resume_at - timedelta(seconds=AGAIN_S) and chosen(one)]

    async def _stream(self, listener: Listener, missed: list[Transition]) -> AsyncIterator[Transition | None]:
        try:
            for transition in missed:
                yield transition
            told = {transition.key for transition in missed}
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        heard = await listener.queue.get()
                except TimeoutError:
                    yield None
                    continue
                if heard is None:
                    return
                if heard.key not in told:
                    yield heard
        finally:
            self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners:
            self._stop()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
