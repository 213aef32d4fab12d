"""The real pipeline, one pass at a time: plan, promote, claim, execute, report. On real PostgreSQL, with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from sexton.client.app import App
from sexton.client.sync import Synced, sync
from sexton.clock import ManualClock
from sexton.domain.duration import Duration, seconds
from sexton.domain.partition import ALL, Scan
from sexton.ids import Rng, entropy
from sexton.scheduler.guardian import Guardian
from sexton.scheduler.planner import Planner
from sexton.scheduler.promoter import Promoter
from sexton.scheduler.sweeper import Sweeper
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.fleet import workers
from sexton.store.work import runs
from sexton.telemetry.events import Emit, Ended, Event
from sexton.worker.worker import Worker

PASS_LIMIT = 1000
OWNER = "testing"
START = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def pipeline(app: App, *, start: datetime = START) -> AsyncIterator[Pipeline]:
    """Uses the app's own database and runs its jobs. The app's clock starts at `start` and stands still until moved."""
    clock, before = ManualClock(start), app.clock.inner
    app.clock.inner = clock
    try:
        yield Pipeline(app, await app.database(), clock)
    finally:
        app.clock.inner = before


class Pipeline:
    def __init__(self, app: App, database: Postgres, clock: ManualClock) -> None:
        self._app, self._database, self._clock = app, database, clock
        self._rng: Rng = entropy()

    @property
    def now(self) -> datetime:
        return self._clock.database_now()

    def move(self, span: Duration) -> None:
        """Moves the clock; jobs that became due run with the next `drain`."""
        self._clock.move(timedelta(seconds=seconds(span, field="span")))

    async def move_to_next(self) -> bool:
        """Moves to the instant at which the next waiting run is due; false if there is none."""
        wait_s = await self._next_due_s()
        if wait_s is not None:
            self.move(wait_s)
        return wait_s is not None

    async def sync(self) -> Synced:
        """Writes the schedules that the app's code declares, as a worker does when it starts."""
        return await sync(self._database, self._app.registry, OWNER, now=self.now)

    async def live_through(self, span: Duration) -> list[Ended]:
        """Moves the clock and stops at every due time, as if scheduler and worker had been running. Returns every execution."""
        end = self.now + timedelta(seconds=seconds(span, field="span"))
        ended = await self.drain()
        while (wait_s := await self._next_due_s()) is not None and self.now + timedelta(seconds=wait_s) <= end:
            self.move(wait_s)
            ended += await self.drain()
        self._clock.move(end - self.now)
        return ended + await self.drain()

    async def drain(self) -> list[Ended]:
        """Runs all due jobs, including immediate retries and jobs that they submit. Returns every execution. Fires of recurring
        jobs that the clock has passed are caught up or missed, as after an outage."""
        ended: list[Ended] = []

        def collect(event: Event) -> None:
            if isinstance(event, Ended):
                ended.append(event)

        for _ in range(PASS_LIMIT):
            if not await self._one_pass(collect):
                return ended
        raise RuntimeError(f"not done after {PASS_LIMIT} passes; does a job submit itself again and again?")

    async def _next_due_s(self) -> float | None:
        async with self._database.connection() as connection:
            return (await runs.promote(connection, Scan(ALL, limit=0), now=self.now)).next_due_s

    async def _one_pass(self, emit: Emit) -> bool:
        """True if anything ran."""
        clock = self._clock
        await Guardian(self._database, clock=clock, emit=emit).run_once()
        planner = Planner(self._database, lambda: ALL, limit=1000, clock=clock, emit=emit)
        while await planner.run_once() == 0.0:
            pass
        promoter = Promoter(self._database, lambda: ALL, limit=1000, clock=clock, emit=emit)
        while await promoter.run_once() == 0.0:
            pass
        await Sweeper(self._database, lease_s=3600, sweep_s=1, clock=clock, emit=emit, rng=self._rng).run_once()
        async with self._database.connection() as connection:
            queues = await runs.ready_queues(connection)
        if not queues:
            return False
        worker = Worker(
            self._database,
            self._app.registry,
            Settings(worker_queues=tuple(queues)),
            timers=asyncio.get_running_loop(),
            clock=clock,
            emit=emit,
            rng=self._rng,
            poll_s=0.0,
            batches_wait=False,  # the clock stands still
        )
        async with self._database.connection() as connection:
            await worker.enlist(connection)
        try:
            return await self._work(worker)
        finally:
            await worker.processes.close()
            worker.threads.close()
            async with self._database.connection() as connection:
                await workers.leave(connection, worker.worker_id)

    async def _work(self, worker: Worker) -> bool:
        ran = False
        while True:
            for intake in worker.intakes:
                await intake.run_once()
            if not len(worker.held_runs):
                return ran
            ran = True
            while len(worker.held_runs):
                await worker.reporter.wake.rest(1.0)
                await worker.reporter.run_once()
