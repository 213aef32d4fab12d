"""A worker as a process: the order in which its parts start and stop.

Start: enlist, heartbeat, reporter, intake, and in parallel the app's declared schedules. Stop: the intake, then executions
(first with patience, then by force), then the last reports, and at the end the heartbeat.
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
        """`transactions` is a second pool, for the handlers' own transactions. `direct_url` was verified to be a direct
        connection; without one, the worker polls. `sync` writes the schedules that the app's code declares. `targets` are the
        tasks other than Python functions; the caller closes them. They pass runs to `early_retry`, if there is one."""
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
        """Runs until `stop` is set, too many threads are zombies or the heartbeat fails permanently; then drains. Unless `stop`
        is set, this is an error: only a new process helps."""
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
            listener = Listener(self._direct_url, [READY, CANCEL], self._notified, emit=self._emit)
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
                "this worker cannot continue: its heartbeat failed, or too many of its handlers ignore the request to stop; "
                "it has returned its runs and exits: start a new worker"
            )

    def _renew(self) -> None:
        """After an interruption, pooled connections may be dead; each would block a handler until its timeout."""
        self._renewing = asyncio.gather(*(pool.renew() for pool in self._pools))

    def _repeat(self, service: Service, wake: Wake) -> asyncio.Task[None]:
        return asyncio.create_task(
            repeat(service, wake, clock=self._clock, emit=self._emit, dice=self._dice), name=f"sexton {service.name}"
        )

    async def _enlist(self) -> None:
        async with self._database.connection() as connection:
            await self.worker.enlist(connection)

    async def _declare(self, sync: Callable[[], Awaitable[object]]) -> None:
        """Runs in parallel: the worker does not wait for it and continues if it fails."""
        try:
            await insist("sync", sync, clock=self._clock, emit=self._emit, dice=self._dice)
        except Exception as error:
            self._emit(ServiceFailed("sync", error))

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(3), self._database.connection() as connection:
                await workers.leave(connection, self.worker.worker_id)
        except (SextonError, TimeoutError):
            pass  # the sweeper notices when the heartbeats stop

    async def _beat(self, loop: asyncio.AbstractEventLoop, stop_beating: asyncio.Event) -> None:
        try:
            await self._keep_beating(loop, stop_beating)
        except Exception as error:  # without heartbeats, other workers would claim the runs while this one still executes them
            self._emit(ServiceFailed("heartbeat", error))
            loop.call_soon_threadsafe(self.worker.exhausted.set)

    async def _keep_beating(self, loop: asyncio.AbstractEventLoop, stop_beating: asyncio.Event) -> None:
        """Runs in the heartbeat's thread, with its own loop and its own connection."""
        database = await insist(
            "heartbeat",
            lambda: Postgres.open(self._database.url, size=1),
            clock=self._clock,
            emit=self._emit,
            dice=self._dice,
        )
        heartbeat = self.worker.make_heartbeat(database, loop.call_soon_threadsafe)
        loop.call_soon_threadsafe(self.worker.hear, "")  # from now on the worker may claim
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

    def _notified(self, channel: str, payload: str) -> None:
        if channel == READY:
            self.worker.hear(payload)
        else:
            self._beat_soon()  # a heartbeat reads the cancellations


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
