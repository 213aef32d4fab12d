"""Rule "the process is not the handler's": a worker that can no longer work must not look alive, because then its supervisor
starts no other one, and the runs that it claims are charged. It returns its runs and exits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sexton.store.database import Postgres
from sexton.telemetry.events import Emit, WorkerDisabled

LOOK_S = 0.5


class Vitals:
    name = "vitals"

    def __init__(self, pools: Sequence[Postgres], disabled: Callable[[], object], *, emit: Emit) -> None:
        """`disabled` is called once, and makes the worker drain."""
        self._pools, self._disabled, self._emit = pools, disabled, emit
        self._has_told = False

    async def run_once(self) -> float:
        for pool in self._pools:
            if pool.is_closed:
                await pool.reopen()  # to return the runs
                self._tell("its connections to the database were closed")
        return LOOK_S

    def watch(self, parts: Iterable[asyncio.Task[None]]) -> None:
        """None of them ends by itself."""
        for part in parts:
            part.add_done_callback(self._ended)

    def rest(self) -> None:
        """The worker ends its parts itself."""
        self._has_told = True

    def _ended(self, part: asyncio.Task[None]) -> None:
        self._tell(f"its task {part.get_name()!r} was cancelled or has ended")

    def _tell(self, reason: str) -> None:
        if not self._has_told:
            self._has_told = True
            self._emit(WorkerDisabled(reason))
            self._disabled()
