"""Shows what running handlers have said so far, at most once a second and only what is new."""

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


class _Words(msgspec.Struct, frozen=True):
    run_id: UUID
    token: int
    progress: msgspec.Raw | None
    output: str | None


class ProgressWriter:
    name = "progress_writer"

    def __init__(self, database: Database, holdings: Holdings, worker_id: Callable[[], UUID], *, clock: Clock) -> None:
        self._database, self._holdings, self._worker_id, self._clock = database, holdings, worker_id, clock

    async def run_once(self) -> float:
        said, voices = [], []
        for execution in self._holdings.all():
            voice = None if execution.context is None else live_output_of(execution.context)
            if execution.phase is Phase.RUNNING and voice is not None and voice.changed:
                said.append(_Words(execution.claimed.lease.run_id, execution.claimed.lease.token, *voice.take()))
                voices.append(voice)
        if said:
            try:
                async with self._database.connection() as connection:
                    await runs.tell(connection, self._worker_id(), said, now=self._clock.database_now())
            except BaseException:
                for voice in voices:
                    voice.changed = True  # not shown yet
                raise
        return REST_S
