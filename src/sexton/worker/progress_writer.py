"""Stores the progress and output of running handlers, at most once a second and only what is new."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from sexton.clock import Clock
from sexton.handlers.context import live_output_of
from sexton.store.database import Database
from sexton.store.work import runs

from .execution import Phase
from .holdings import Holdings

REST_S = 1.0


class _Progress(msgspec.Struct, frozen=True):
    run_id: UUID
    token: int
    progress: msgspec.Raw | None
    output: str | None


class ProgressWriter:
    name = "progress_writer"

    def __init__(self, database: Database, holdings: Holdings, worker_id: Callable[[], UUID], *, clock: Clock) -> None:
        self._database, self._holdings, self._worker_id, self._clock = database, holdings, worker_id, clock

    async def run_once(self) -> float:
        reports, changed = [], []
        for execution in self._holdings.all():
            live = None if execution.context is None else live_output_of(execution.context)
            if execution.phase is Phase.RUNNING and live is not None and live.changed:
                reports.append(_Progress(execution.claimed.lease.run_id, execution.claimed.lease.token, *live.take()))
                changed.append(live)
        if reports:
            try:
                async with self._database.connection() as connection:
                    await runs.tell(connection, self._worker_id(), reports, now=self._clock.database_now())
            except BaseException:
                for live in changed:
                    live.changed = True  # not stored yet
                raise
        return REST_S
