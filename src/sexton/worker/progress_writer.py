"""Stores the progress and output of running handlers, at most once a second and only what is new. What another transaction has
locked is left for later, and the others go on (rule "a waiting caller leaves the group")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from sexton.clock import Clock
from sexton.errors import Contention
from sexton.handlers.context import live_output_of
from sexton.store.database import Database
from sexton.store.work import runs

from .execution import Phase
from .held_runs import HeldRuns

REST_S = 1.0
LOCKED_REST_S = 5.0


class _Progress(msgspec.Struct, frozen=True):
    run_id: UUID
    token: int
    progress: msgspec.Raw | None
    output: str | None


class ProgressWriter:
    name = "progress_writer"

    def __init__(self, database: Database, held_runs: HeldRuns, worker_id: Callable[[], UUID], *, clock: Clock) -> None:
        self._database, self._held_runs, self._worker_id, self._clock = database, held_runs, worker_id, clock
        self._rests_until: dict[UUID, float] = {}  # by run, after it was found locked

    async def run_once(self) -> float:
        reports, changed = [], []
        now = self._clock.monotonic()
        self._rests_until = {run_id: at for run_id, at in self._rests_until.items() if at > now}
        for execution in self._held_runs.all():
            live = None if execution.context is None else live_output_of(execution.context)
            is_new = execution.phase is Phase.RUNNING and live is not None and live.changed
            if is_new and live is not None and execution.claimed.run_id not in self._rests_until:
                reports.append(_Progress(*execution.claimed.lease.fence, *live.take()))
                changed.append(live)
        if reports:
            try:
                locked = await store_output(self._database, self._worker_id(), reports, clock=self._clock)
            except BaseException:
                for live in changed:
                    live.changed = True  # not stored yet
                raise
            for index in locked:
                changed[index].changed = True
                self._rests_until[reports[index].run_id] = now + LOCKED_REST_S
        return REST_S


async def store_output(database: Database, worker_id: UUID, progress: Sequence[object], *, clock: Clock) -> list[int]:
    """Writes all together or, if that meets a lock, one by one. Returns which of them are locked."""
    try:
        async with database.connection() as connection:
            await runs.tell(connection, worker_id, progress, now=clock.database_now())
    except Contention:
        if len(progress) == 1:
            return [0]
    else:
        return []
    return [index for index, one in enumerate(progress) if await store_output(database, worker_id, [one], clock=clock)]
