"""A worker as a process: the one visible order in which its parts start and stop.

Start: enlist, heartbeat, reporter, intake, and beside them the app's declared schedules. Stop: intake first, then executions
(patience, then force), then the last reports, and the heartbeat last of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sexton.clock import Clock
from sexton.errors import SextonError
from sexton.handlers.handle import Handler
from sexton.ids import Rng
from sexton.registry import Registry
from sexton.service import AskedToStop, Service, Wake, insist, repeat, unless_stopped
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.fleet import workers
from sexton.store.postgres.wakeups import CANCEL, READY, Listener
from sexton.telemetry.events import Emit, ServiceFailed

from .early_retry import EarlyRetry
from .heartbeat import OwnThread, idle_beat_s
from .worker import Worker

WATCH_S = 0.5


class WorkerProcess:
    def __init__(
        self,
        database: Postgres,
        transactions: Postgres,
        registry: Registry,
        settings: Settings,
        *,
        direct_url: str | None,
        clock: Clock,
        emit: Emit,
        dice: Rng,
        sync: Callable[[], Awaitable[object]] | None = None,
        targets: Mapping[str, Handler] | None = None,
        early_retry: EarlyRetry | None = None,
    ) -> None:
        """`transactions` is a second pool, for the handlers' own. `direct_url` is a way proven to be direct; without one,
        wake-ups turn to polling. `sync` writes the schedules that the app's code declares. `targets` are the tasks that are no
        Python functions; whoever made them closes them. `early_retry` is told by them, if they have one."""
        self._sync, self._hastener = sync, early_retry
        self._database, self._settings, self._direct_url = database, settings, direct_url
        self._clock, self._emit, self._dice = clock, emit, dice
        self.worker = Worker(
            database,
            registry,
            settings,
            timers=asyncio.get_running_loop(),
            clock=clock,
            emit=emit,
            dice=dice,
            poll_s=settings.poll_s if direct_url is not None else settings.pooled_poll_s,
            transactions=transactions,
            looks_by_beat=direct_url is not None and settings.poll_s >= idle_beat_s(settings.beat_s, settings.lease_s),
            needs_heartbeat=True,
            targets=targets,
        )
        self.worker.cut_off = self._renew
        self._pools = (database, transactions)
        self._renewing: asyncio.Future[list[None]] | None = None
        self._beat_soon: Callable[[], object] = lambda: None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, too many of its threads are zombies or its heartbeat fails for good; then drains. If nobody
        asked for the end, it is an error: only a new process helps."""
        worker = self.worker
        try:
            await unless_stopped(stop, insist("worker", self._enlist, clock=self._clock, emit=self._emit, dice=self._dice))
        except AskedToStop:
            return
        loop = asyncio.get_running_loop()
        worker.pulse.feel(loop)
        heart = OwnThread("sexton-heartbeat", lambda stop_beating: self._beat(loop, stop_beating))
        heart.start()
        reporter = self._repeat(worker.reporter, worker.reporter.wake)
        intakes = [self._repeat(hand, hand.wake) for intake in worker.intakes for hand in intake.hands]
        others = [self._repeat(worker.progress_writer, Wake())]
        if self._hastener is not None:
            others.append(self._repeat(self._hastener, self._hastener.wake))
        if self._sync is not None:
            others.append(asyncio.create_task(self._declare(self._sync), name="sexton sync"))
        if self._direct_url is not None:
            listener = Listener(self._direct_url, [READY, CANCEL], self._hear, emit=self._emit)
            others.append(asyncio.create_task(listener.run(), name="listener"))
        try:
            await _first_of(stop, worker.exhausted)
        finally:
            await worker.drain(self._settings.worker_drain_s)
            await _cancel([*intakes, *others, reporter])
            await worker.flush()
            await worker.processes.close()
            worker.threads.close()
            await self._leave()
            await heart.stop(patience_s=2.0)
        if worker.exhausted.is_set() and not stop.is_set():
            raise SextonError(
                "this worker cannot go on, because its heartbeat failed or too many of its handlers ignore their end; "
                "it has handed its work back and leaves: start a new one"
            )

    def _renew(self) -> None:
        """Whatever silenced us may have left connections that lead nowhere; each would hold up a handler until its timeout."""
        self._renewing = asyncio.gather(*(pool.renew() for pool in self._pools))

    def _repeat(self, service: Service, wake: Wake) -> asyncio.Task[None]:
        return asyncio.create_task(
            repeat(service, wake, clock=self._clock, emit=self._emit, dice=self._dice), name=f"sexton {service.name}"
        )

    async def _enlist(self) -> None:
        async with self._database.connection() as connection:
            await self.worker.enlist(connection)

    async def _declare(self, sync: Callable[[], Awaitable[object]]) -> None:
        """Beside the work, which need not wait for it and goes on without it."""
        try:
            await insist("sync", sync, clock=self._clock, emit=self._emit, dice=self._dice)
        except Exception as error:
            self._emit(ServiceFailed("sync", error))

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(3), self._database.connection() as connection:
                await workers.leave(connection, self.worker.worker_id)
        except (SextonError, TimeoutError):
            pass  # the sweeper notices by itself when our beat stops

    async def _beat(self, loop: asyncio.AbstractEventLoop, stop_beating: asyncio.Event) -> None:
        try:
            await self._keep_beating(loop, stop_beating)
        except Exception as error:  # without a heart, others would take our runs while we go on with them
            self._emit(ServiceFailed("heartbeat", error))
            loop.call_soon_threadsafe(self.worker.exhausted.set)

    async def _keep_beating(self, loop: asyncio.AbstractEventLoop, stop_beating: asyncio.Event) -> None:
        """The heartbeat's own thread: its own loop, its own connection."""
        database = await insist(
            "heartbeat",
            lambda: Postgres.open(self._database.url, size=1),
            clock=self._clock,
            emit=self._emit,
            dice=self._dice,
        )
        heartbeat = self.worker.make_heartbeat(database, loop.call_soon_threadsafe)
        loop.call_soon_threadsafe(self.worker.hear, "")  # from now on it may take work
        wake, own_loop = Wake(), asyncio.get_running_loop()
        self._beat_soon = partial(own_loop.call_soon_threadsafe, wake)
        beating = self._repeat(heartbeat, wake)
        while not stop_beating.is_set():
            heartbeat.watch()
            try:
                async with asyncio.timeout(WATCH_S):
                    await stop_beating.wait()
            except TimeoutError:
                pass
        self._beat_soon = lambda: None
        await _cancel([beating])
        await database.close()

    def _hear(self, channel: str, payload: str) -> None:
        if channel == READY:
            self.worker.hear(payload)
        else:
            self._beat_soon()  # a beat brings the cancellations


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(waits)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
