"""One scheduler node: its services, in one visible order of start and stop."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from sexton.clock import Clock
from sexton.errors import SextonError
from sexton.ids import Rng, process_id, process_name
from sexton.service import Service, Wake, repeat
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.postgres.advisory_locks import PartitionLocks
from sexton.store.postgres.wakeups import DUE, PLAN, Listener
from sexton.telemetry.events import Emit

from .guardian import Guardian
from .janitor import Janitor
from .leadership import Leadership
from .lock_watcher import LockWatcher
from .planner import REST_S, WOKEN_REST_S, Planner
from .promoter import Promoter
from .sweeper import QUIET_S, Sweeper


class Scheduler:
    def __init__(
        self, database: Postgres, settings: Settings, *, direct_url: str | None, clock: Clock, emit: Emit, rng: Rng
    ) -> None:
        """`direct_url` is a connection proven to be direct. Without one, polling replaces wake-ups, and leadership uses shares
        alone."""
        self._clock, self._emit, self._rng = clock, emit, rng
        self._direct_url = direct_url
        self._promoter_wake, self._planner_wake = Wake(), Wake()
        locks = None if direct_url is None else PartitionLocks(direct_url)
        self.leadership = Leadership(
            database, process_id(), process_name(), locks, clock=clock, emit=emit, changed=self._led_others
        )
        plan_rest_s = WOKEN_REST_S if settings.sweep_s <= QUIET_S else REST_S
        self.planner = Planner(database, self._led, limit=settings.plan_limit, clock=clock, emit=emit, rest_s=plan_rest_s)
        self.guardian = Guardian(database, clock=clock, emit=emit)
        poll_s = settings.poll_s if direct_url is not None else settings.pooled_poll_s
        self.promoter = Promoter(database, self._led, limit=settings.promote_limit, clock=clock, emit=emit, rest_s_max=poll_s)
        self.sweeper = Sweeper(
            database,
            lease_s=settings.lease_s,
            sweep_s=settings.sweep_s,
            clock=clock,
            emit=emit,
            rng=rng,
            to_plan=self._planner_wake,
        )
        self.lock_watcher = LockWatcher(database, self._led, clock=clock, emit=emit)
        days = {"history_days": settings.history_days, "dead_letter_days": settings.dead_letter_days}
        self.janitor = Janitor(database, **days, clock=clock, emit=emit)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set."""
        services: list[tuple[Service, Wake]] = [
            (self.leadership, Wake()),
            (self.planner, self._planner_wake),
            (self.promoter, self._promoter_wake),
            (self.sweeper, Wake()),
            (self.guardian, Wake()),
            (self.janitor, Wake()),
            (self.lock_watcher, Wake()),
        ]
        async with AsyncExitStack() as exits:
            exits.push_async_callback(self._leave)
            tasks = [
                asyncio.create_task(repeat(service, wake, clock=self._clock, emit=self._emit, rng=self._rng), name=service.name)
                for service, wake in services
            ]
            if self._direct_url is not None:
                listener = Listener(self._direct_url, [DUE, PLAN], self._hear, emit=self._emit)
                tasks.append(asyncio.create_task(listener.run(), name="listener"))
            exits.push_async_callback(_cancel, tasks)
            await stop.wait()

    def _led(self) -> frozenset[int]:
        return self.leadership.partitions

    def _led_others(self) -> None:
        self._promoter_wake()
        self._planner_wake()

    def _hear(self, channel: str, _payload: str) -> None:
        (self._planner_wake if channel == PLAN else self._promoter_wake)()

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(3):
                await self.leadership.close()
        except (SextonError, TimeoutError):
            pass  # the other nodes notice when our heartbeat stops


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
