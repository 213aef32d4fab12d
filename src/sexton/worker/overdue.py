"""How an idle worker handles runs that no scheduler made ready in time (rule "any node does overdue work")."""

from __future__ import annotations

from sexton.clock import Clock
from sexton.operations import due
from sexton.operations.caller import SCHEDULER
from sexton.store.database import Database
from sexton.store.sharing import parked_runs

from .empty_queues import EmptyQueueFilter


class OverdueWork:
    def __init__(self, database: Database, empty_queues: EmptyQueueFilter | None, *, clock: Clock) -> None:
        """If a heartbeat found nothing overdue, `empty_queues` knows it and the database is not queried."""
        self._database, self._empty_queues, self._clock = database, empty_queues, clock
        self._looked_at_keys = parked_runs.FIRST  # limit keys checked so far

    async def see_to(self) -> int:
        """Returns how many runs it made ready."""
        if self._empty_queues is not None and self._empty_queues.knows_nothing_is_overdue:
            return 0
        done = await due.do_overdue_work(self._database, SCHEDULER, after=self._looked_at_keys, now=self._clock.database_now())
        self._looked_at_keys = done.stopped_at
        if done.ready_count and self._empty_queues is not None:
            self._empty_queues.hear()
        return done.ready_count
