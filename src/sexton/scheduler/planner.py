"""Writes the next runs of recurring jobs ahead of time, so that at the minute itself there is nothing to compute.

It keeps no state: what is to be planned is found by an index on `plan_at`, and the cursor moves by compare-and-set (rule 1),
so any number of planners may look at the same schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sexton.clock import Clock
from sexton.domain import partition
from sexton.store import planning, runs, schedules
from sexton.store.database import Connection, Database
from sexton.telemetry.events import Emit, FiresMissed, Planned

REST_S = 2.0
OVERDUE_S = 2.0  # rule 12: what a leader leaves unplanned for this long, anybody plans
DUE_SOON_S = 3.0


class Planner:
    name = "planner"

    def __init__(self, database: Database, led: Callable[[], Collection[int]], *, limit: int, clock: Clock, emit: Emit) -> None:
        self._database, self._led, self._limit, self._clock, self._emit = database, led, limit, clock, emit
        self._looked_around_at: float | None = None

    async def run_once(self) -> float:
        async with self._database.connection() as connection:
            count = await self._plan(connection, self._led(), overdue_s=0.0)
            if self._time_to_look_around():
                count += await self._plan(connection, partition.ALL, overdue_s=OVERDUE_S)
        return 0.0 if count >= self._limit else REST_S

    async def _plan(self, connection: Connection, partitions: Collection[int], *, overdue_s: float) -> int:
        now = self._clock.database_now()
        seen = await schedules.to_plan(connection, partitions=partitions, limit=self._limit, overdue_s=overdue_s, now=now)
        if not seen:
            return 0
        planned = await planning.write(connection, seen, now=now)
        if planned.next_due_s is not None and planned.next_due_s < DUE_SOON_S:
            await runs.announce(connection, (), due_soon=True)
        if planned.ids:
            self._emit(Planned(len(planned.ids), overdue=overdue_s > 0))
        if planned.missed_count:
            self._emit(FiresMissed(planned.missed_count))
        return len(seen)

    def _time_to_look_around(self) -> bool:
        if len(self._led()) == partition.PARTITION_COUNT:
            return False
        now = self._clock.monotonic()
        if self._looked_around_at is not None and now - self._looked_around_at < OVERDUE_S:
            return False
        self._looked_around_at = now
        return True
