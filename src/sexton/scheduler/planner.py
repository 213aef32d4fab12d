"""Writes the next runs of recurring jobs ahead of time, so that at the minute itself there is nothing to compute.

It keeps no state: what is to be planned is found by an index on `plan_at`, and the cursor moves by compare-and-set (rule 1),
so any number of planners may look at the same schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sexton.clock import Clock
from sexton.domain import partition
from sexton.store import planning, runs, schedules
from sexton.store.database import Connection, Database
from sexton.telemetry.events import Emit, FiresMissed, Planned, ServiceFailed

from .look_around import OVERDUE_S, LookAround

REST_S = 2.0
RECALL_S = 10.0  # between two looks for fires that nobody promoted
DUE_SOON_S = 3.0


class Planner:
    name = "planner"

    def __init__(self, database: Database, led: Callable[[], Collection[int]], *, limit: int, clock: Clock, emit: Emit) -> None:
        self._database, self._led, self._limit, self._clock, self._emit = database, led, limit, clock, emit
        self._look_around = LookAround(led, clock)
        self._recalled_at: float | None = None

    async def run_once(self) -> float:
        async with self._database.connection() as connection:
            if not await self._recall(connection):
                return 0.0
            count = await self._plan(connection, self._led(), overdue_s=0.0)
            if self._look_around.is_due():
                count += await self._plan(connection, partition.ALL, overdue_s=OVERDUE_S)
        return 0.0 if count >= self._limit else REST_S

    async def _plan(self, connection: Connection, partitions: Collection[int], *, overdue_s: float) -> int:
        now = self._clock.database_now()
        seen = await schedules.to_plan(connection, partitions=partitions, limit=self._limit, overdue_s=overdue_s, now=now)
        if not seen:
            return 0
        planned = await planning.write(connection, seen, now=now, unforeseen=self._failed)
        if planned.next_due_s is not None and planned.next_due_s < DUE_SOON_S:
            await runs.announce(connection, (), due_soon=True)
        if planned.ids:
            self._emit(Planned(len(planned.ids), overdue=overdue_s > 0))
        if planned.missed_count:
            self._emit(FiresMissed(planned.missed_count))
        return len(seen)

    async def _recall(self, connection: Connection) -> bool:
        """False if there may be more. It comes before planning, so that a gap is decided about as a whole."""
        now = self._clock.monotonic()
        if self._recalled_at is not None and now - self._recalled_at < RECALL_S:
            return True
        count = await schedules.recall(connection, partitions=partition.ALL, limit=self._limit, now=self._clock.database_now())
        if count == 0:
            self._recalled_at = now
        return count == 0

    def _failed(self, error: Exception) -> None:
        self._emit(ServiceFailed(self.name, error))
