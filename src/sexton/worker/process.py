"""A worker as a process: the order in which its parts start and stop.

Start: enlist, heartbeat, reporter, intake, and in parallel the app's declared schedules. Stop: the intake, then executions
(first with patience, then by force), then the last reports, and at the end the heartbeat.
"""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from sexton.clock import Clock
from sexton.errors import SextonError
from sexton.handlers.handle import Handler
from sexton.handlers.python.process_state import ProcessState
from sexton.ids import Rng
from sexton.operations.recurring.declared_schedules import Synced
from sexton.registry import Registry
from sexton.service import AskedToStop, Service, Wake, insist, repeat, unless_stopped
from sexton.settings import Settings
from sexton.store.database import SHARED, Postgres
from sexton.store.fleet import workers
from sexton.store.postgres.wakeups import CANCEL, READY, Listener
from sexton.telemetry.events import EditsKept, EditsOverwritten, Emit, ServiceFailed
from sexton.worker.quarantine.child import Confined, Idleness
from sexton.worker.quarantine.parent import ChildProcess, Command, Quarantine
from sexton.worker.stall import interpreter_lock, stack_dump
from sexton.worker.stall.interpreter_lock import Standstill
from sexton.worker.stall.stack_dump import StackDump

from .early_retry import EarlyRetry
from .heartbeat import LastResort, OwnThread, idle_beat_s
from .own_session import WATCH_AFTER_S
from .process_guard import ProcessGuard
from .vitals import Vitals
from .worker import Worker

WATCH_S = 0.5
QUARANTINE_END_S = 3.0


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
        rng: Rng,
        sync: Callable[[], Awaitable[object]] | None = None,
        targets: Mapping[str, Handler] | None = None,
        early_retry: EarlyRetry | None = None,
        quarantine: Command | None = None,
        confined: Confined | None = None,
        leaves: Callable[[], None] = lambda: None,
        last_resort: LastResort | None = None,
    ) -> None:
        """`transactions` is a second pool, for the handlers' own transactions. `direct_url` was verified to be a direct
        connection; without one, the worker polls. `sync` writes the schedules that the app's code declares. `targets` are the
        tasks other than Python functions; the caller closes them. They pass runs to `early_retry`, if there is one.
        `quarantine` starts a child for suspects; `confined`: this process is such a child. `leaves` is called when the worker
        begins to drain, for whatever reason. `last_resort` ends the process if its event loop stays blocked."""
        self._leaves, self._last_resort = leaves, last_resort
        self._sync, self._early_retry = sync, early_retry
        self._database, self._settings, self._direct_url = database, settings, direct_url
        self._registry = registry
        self._dump_name = stack_dump.name_of(registry.owner, database.url)
        self._clock, self._emit, self._rng = clock, emit, rng
        self.worker = Worker(
            database,
            registry,
            settings,
            timers=asyncio.get_running_loop(),
            clock=clock,
            emit=emit,
            rng=rng,
            poll_s=settings.poll_s if direct_url is not None else settings.pooled_poll_s,
            transactions=transactions,
            heartbeat_polls=confined is None
            and direct_url is not None
            and settings.poll_s >= idle_beat_s(settings.beat_s, settings.lease_s),
            needs_heartbeat=True,
            targets=targets,
            confined=confined,
        )
        self._quarantine = None if quarantine is None else self._make_quarantine(quarantine)
        self._is_confined = confined is not None
        self.worker.cut_off = self._renew
        self._pools = (database, transactions)
        self._renewing: asyncio.Future[list[None]] | None = None
        self._beat_soon: Callable[[], object] = lambda: None

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set, too many threads are zombies or the heartbeat fails permanently; then drains. Unless `stop`
        is set, this is an error: only a new process helps."""
        worker = self.worker
        try:
            await unless_stopped(stop, insist("worker", self._enlist, clock=self._clock, emit=self._emit, rng=self._rng))
        except AskedToStop:
            return
        loop = asyncio.get_running_loop()
        dump = self._watch_for_standstill()
        worker.pulse.feel(loop)
        heart = OwnThread("sexton-heartbeat", lambda stop_beating: self._beat(loop, stop_beating))
        heart.start()
        reporter = self._repeat(worker.reporter, worker.reporter.wake)
        intakes = [self._repeat(hand, hand.wake) for intake in worker.intakes for hand in intake.hands]
        guard = ProcessGuard(ProcessState(), worker.ran, worker.running_in_process, clock=self._clock, emit=self._emit)
        others = [self._repeat(worker.progress_writer, Wake()), self._repeat(guard, Wake())]
        if self._early_retry is not None:
            others.append(self._repeat(self._early_retry, self._early_retry.wake))
        if self._direct_url is not None:
            listener = Listener(self._direct_url, [READY, CANCEL], self._notified, emit=self._emit)
            others.append(asyncio.create_task(listener.run(), name="listener"))
        idle = asyncio.Event()
        if self._is_confined:
            others.append(self._repeat(Idleness(worker.held_runs, idle.set, clock=self._clock), Wake()))
        watching = None if self._quarantine is None else self._repeat(self._quarantine, self._quarantine.wake)
        vitals = Vitals(self._pools, worker.exhausted.set, emit=self._emit)
        others.append(self._repeat(vitals, Wake()))
        vitals.watch([*intakes, reporter, *others, *([] if watching is None else [watching])])
        if self._sync is not None:
            others.append(asyncio.create_task(self._declare(self._sync), name="sexton sync"))
        try:
            await _first_of(stop, worker.exhausted, idle)
        finally:
            vitals.rest()
            self._leaves()
            if self._quarantine is not None:
                self._quarantine.ask_to_stop()
            await worker.drain(self._settings.worker_drain_s)
            await _cancel([*intakes, *others, reporter, *([watching] if watching is not None else [])])
            guard.look()
            await worker.flush()
            await self._end_quarantine()
            await worker.processes.close()
            worker.threads.close()
            await self._leave()
            await heart.stop(patience_s=2.0)
            if dump is not None:
                worker.pulse.on_feel = lambda _elapsed_s: None
                dump.close()
        if worker.exhausted.is_set() and not stop.is_set():
            raise SextonError(
                "this worker cannot continue: its heartbeat or another part of it failed, "
                "or too many of its handlers ignore the request to stop; "
                "it has returned its runs and exits: start a new worker"
            )

    def _make_quarantine(self, command: Command) -> Quarantine:
        worker = self.worker
        quarantine = Quarantine(
            self._database,
            lambda: ChildProcess(command, worker.worker_id),
            worker_id=lambda: worker.worker_id,
            queues=self._settings.worker_queues,
            tasks=[name for intake in worker.intakes for name in intake.tasks],
            read_dumps=self._read_dumps,
            clock=self._clock,
            emit=self._emit,
        )
        worker.on_suspects = quarantine.hear_of_suspects
        return quarantine

    async def _end_quarantine(self) -> None:
        """The child drains at the same time as its parent, so it needs only a moment more."""
        if self._quarantine is not None:
            with suppress(SextonError):  # the sweeper notices when its heartbeats stop
                await self._quarantine.close(QUARANTINE_END_S)

    def _watch_for_standstill(self) -> StackDump | None:
        """A handler that crashes the process, or keeps all of Python from running, leaves its stack."""
        with suppress(RuntimeError, OSError):  # there is no standard error
            if not faulthandler.is_enabled():
                faulthandler.enable()
        self._read_dumps()
        dump = StackDump.open(self._dump_name, after_s=self._settings.loop_stall_s, clock=self._clock)
        if dump is not None:
            worker = self.worker
            worker.pulse.on_feel = Standstill(
                dump,
                worker.pulse,
                worker.held_runs,
                self._registry,
                worker_id=lambda: worker.worker_id,
                loop_stall_s=self._settings.loop_stall_s,
                emit=self._emit,
            ).felt
        return dump

    def _read_dumps(self) -> None:
        for found in interpreter_lock.left_behind(self._dump_name, self._registry):
            self._emit(found)

    def _renew(self) -> None:
        """After an interruption, pooled connections may be dead; each would block a handler until its timeout."""
        self._renewing = asyncio.gather(*(pool.renew() for pool in self._pools))

    def _repeat(self, service: Service, wake: Wake) -> asyncio.Task[None]:
        return asyncio.create_task(
            repeat(service, wake, clock=self._clock, emit=self._emit, rng=self._rng), name=f"sexton {service.name}"
        )

    async def _enlist(self) -> None:
        async with self._database.connection() as connection:
            await self.worker.enlist(connection)

    async def _declare(self, sync: Callable[[], Awaitable[object]]) -> None:
        """Runs in parallel: the worker does not wait for it and continues if it fails."""
        try:
            done = await insist("sync", sync, clock=self._clock, emit=self._emit, rng=self._rng)
        except Exception as error:
            self._emit(ServiceFailed("sync", error))
            return
        if isinstance(done, Synced) and done.kept:
            self._emit(EditsKept(tuple(done.kept)))
        if isinstance(done, Synced) and done.overwritten:
            self._emit(EditsOverwritten(tuple(done.overwritten)))

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
        wake, own_loop = Wake(), asyncio.get_running_loop()

        def ended(number: int) -> None:
            if heartbeat.session_ended(number):
                wake()
                for after_s in WATCH_AFTER_S:
                    own_loop.call_later(after_s, heartbeat.watch)

        database = await insist(
            "heartbeat",
            lambda: Postgres.open(self._database.url, size=1, timeouts=SHARED, ended=ended),
            clock=self._clock,
            emit=self._emit,
            rng=self._rng,
        )
        heartbeat = self.worker.make_heartbeat(database, loop.call_soon_threadsafe, self._last_resort)
        loop.call_soon_threadsafe(self.worker.hear, "")  # from now on the worker may claim
        self._beat_soon = partial(own_loop.call_soon_threadsafe, wake)
        beating = self._repeat(heartbeat, wake)
        watch_s = min(WATCH_S, self._settings.loop_stall_s / 8)
        while not stop_beating.is_set():
            heartbeat.watch()
            try:
                async with asyncio.timeout(watch_s):
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
