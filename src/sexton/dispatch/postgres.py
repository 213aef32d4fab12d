"""The default transport: workers pull from the `runs` table."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sexton.clock import Clock
from sexton.domain import partition
from sexton.domain.run import Claimed
from sexton.store import admission, planning, runs, schedules
from sexton.store.database import Connection, Database

RESCUE_OVERDUE_S = 5.0
RESCUE_LIMIT = 1000


class PostgresTransport:
    def __init__(self, database: Database, queues: Sequence[str], *, grace_s: float, clock: Clock) -> None:
        """`grace_s` is how long past its timeout a run may take to stop before a sweeper ends it."""
        self._database, self._queues, self._grace_s, self._clock = database, list(queues), grace_s, clock

    async def take(self, worker_id: UUID, tasks: Sequence[str], limit: int, *, ahead: bool) -> list[Claimed]:
        async with self._database.connection() as connection:
            return await runs.claim(
                connection,
                worker_id=worker_id,
                queues=self._queues,
                tasks=tasks,
                limit=limit,
                grace_s=self._grace_s,
                at_most_once=not ahead,
                now=self._clock.database_now(),
            )

    async def rescue(self) -> int:
        async with self._database.connection() as connection:
            done = await runs.promote(
                connection,
                partitions=partition.ALL,
                limit=RESCUE_LIMIT,
                overdue_s=RESCUE_OVERDUE_S,
                now=self._clock.database_now(),
            )
            if done.promoted_count:
                await runs.announce(connection, done.queues)
            await self._plan(connection)
        if not done.to_decide:
            return done.promoted_count
        admitted = await admission.admit(self._database, partition.ALL, limit=RESCUE_LIMIT, now=self._clock.database_now())
        return done.promoted_count + admitted.admitted_count

    async def _plan(self, connection: Connection) -> None:
        now = self._clock.database_now()
        seen = await schedules.to_plan(
            connection, partitions=partition.ALL, limit=RESCUE_LIMIT, overdue_s=RESCUE_OVERDUE_S, now=now
        )
        if seen:
            await planning.write(connection, seen, now=now, unforeseen=lambda _error: None)
