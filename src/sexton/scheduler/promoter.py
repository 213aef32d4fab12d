"""Moves due runs from waiting to ready, earliest first, and notifies the queues. The B-tree is the timer: a pass reads the
earliest due row of its partitions and keeps nothing in memory that it could not lose."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sexton.clock import Clock
from sexton.domain.claim_cursors import Look, Looking
from sexton.domain.partition import ALL, Scan
from sexton.operations import due
from sexton.operations.caller import SCHEDULER
from sexton.operations.recurring.admit import admit
from sexton.store.database import Database
from sexton.store.sharing import parked_runs
from sexton.store.work import runs
from sexton.telemetry.events import Emit, Promoted

from .overdue_check import OVERDUE_S, Led, OverdueCheck

REST_S_MAX = 2.0  # rule "any node does overdue work": no longer, if a run could become due without a notification
RELEASE_S_MAX = 1.0  # while runs wait for a limit: a run that freed a slot may have seen no waiting run
ADMIT_S = 0.5  # after this long, the pass continues with other runs


class Promoter:
    name = "promoter"

    def __init__(
        self, database: Database, led: Led, *, limit: int, clock: Clock, emit: Emit, rest_s_max: float = REST_S_MAX
    ) -> None:
        self._database, self._led, self._limit, self._clock, self._emit = database, led, limit, clock, emit
        self._rest_s_max = min(rest_s_max, REST_S_MAX)
        self._overdue_check = OverdueCheck(led, clock)
        self._looking = Looking()
        self._marked: frozenset[int] = frozenset()  # the partitions that the mark belongs to
        self._mark: datetime | None = None  # the due time of the last promoted run
        self._looked_at_keys = parked_runs.FIRST  # limits, up to this key

    async def run_once(self) -> float:
        rest_s = await self._promote(Scan(self._led(), self._limit))
        if self._overdue_check.is_due():
            await self._promote(Scan(ALL, self._limit, OVERDUE_S))
        return rest_s

    async def _promote(self, scan: Scan) -> float:
        began_s = self._clock.monotonic()
        look = Look.WHOLE if scan.is_for_others else self._look(scan.partitions, began_s)
        async with self._database.connection() as connection:
            done = await due.promote_runs(
                connection, SCHEDULER, scan, since=None if look is Look.WHOLE else self._mark, now=self._clock.database_now()
            )
        if not scan.is_for_others:
            self._note(done, look, began_s)
        if done.promoted_count:
            self._emit(Promoted(done.promoted_count, tuple(done.queues), overdue=scan.is_for_others))
        rest_s = self._rest_s_max if done.next_due_s is None else min(done.next_due_s, self._rest_s_max)
        if done.to_release:
            rest_s = min(rest_s, await self._release())
        if done.to_tend:
            rest_s = min(rest_s, await self._tend())
        if done.to_decide:
            rest_s = min(rest_s, await self._admit(scan))
        return 0.0 if done.promoted_count >= scan.limit else rest_s

    def _look(self, partitions: Collection[int], now_s: float) -> Look:
        """Where to begin (domain.claim_cursors)."""
        if self._marked != frozenset(partitions):
            self._marked, self._mark = frozenset(partitions), None
        return Look.WHOLE if self._mark is None else self._looking.next(now_s)

    def _note(self, done: runs.Promoted, look: Look, began_s: float) -> None:
        was_behind = self._mark is not None and done.first_due_at is not None and done.first_due_at < self._mark
        self._looking.note(look, began_s, self._clock.monotonic(), is_full=True, was_behind=was_behind)
        self._mark = done.last_due_at or self._mark

    async def _release(self) -> float:
        async with self._database.connection() as connection:
            now = self._clock.database_now()
            released = await due.release_parked(connection, SCHEDULER, after=self._looked_at_keys, now=now)
        self._looked_at_keys = released.stopped_at
        if released.released_count:
            self._emit(Promoted(released.released_count, tuple(released.queues), overdue=False))
        return RELEASE_S_MAX if released.next_s is None else min(released.next_s, RELEASE_S_MAX)

    async def _tend(self) -> float:
        async with self._database.connection() as connection:
            tended = await due.tend_queues(connection, SCHEDULER, now=self._clock.database_now())
        return self._rest_s_max if tended.next_s is None else tended.next_s

    async def _admit(self, scan: Scan) -> float:
        """Repeats while there is more, but not for long: the promotion above has to skip all runs that wait for a decision."""
        until = self._clock.monotonic() + ADMIT_S
        while True:
            now = self._clock.database_now()
            admitted = await admit(self._database, SCHEDULER, scan.partitions, limit=scan.limit, now=now)
            if admitted.admitted_count:
                self._emit(Promoted(admitted.admitted_count, tuple(admitted.queues), overdue=scan.is_for_others))
            if not admitted.admitted_count or admitted.again_in_s != 0.0 or self._clock.monotonic() >= until:
                return self._rest_s_max if admitted.again_in_s is None else admitted.again_in_s
