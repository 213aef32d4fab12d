"""Restarts the embedded PostgreSQL of a running `sexton dev` if it ends, for example by the OOM killer. The other services wait
for it and continue."""

from __future__ import annotations

import asyncio

from sexton.errors import DatabaseUnavailable, EmbeddedUnavailable
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.telemetry.events import EmbeddedRestarted, Emit

LOOK_S = 0.5


class EmbeddedRestart:
    name = "embedded PostgreSQL"

    def __init__(self, server: EmbeddedPostgres, *, emit: Emit) -> None:
        self._server, self._emit = server, emit

    async def run_once(self) -> float:
        if not self._server.is_alive:
            try:
                await asyncio.to_thread(self._server.revive)
            except EmbeddedUnavailable as error:
                raise DatabaseUnavailable(str(error)) from error  # logged once, and tried again
            self._emit(EmbeddedRestarted(str(self._server.data_dir)))
        return LOOK_S
