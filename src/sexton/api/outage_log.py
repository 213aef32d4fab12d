"""The log of outages, as callers of the API meet them: one line when requests fail because of the database, and one when it can
be used again. A request that succeeds proves little, because others may need more rights; the readiness check decides."""

from __future__ import annotations

import asyncio

from sexton.clock import Clock
from sexton.errors import DatabaseUnavailable
from sexton.ids import Rng
from sexton.service import RETRY_S_MAX, Outage
from sexton.store.database import Database
from sexton.store.fleet import cluster
from sexton.store.postgres.driver_errors import took_too_long
from sexton.telemetry.events import Emit

QUIET_S = 2.0  # without a request that fails, before an outage is over


class OutageLog:
    def __init__(self, database: Database, *, clock: Clock, emit: Emit, rng: Rng) -> None:
        self._database, self._clock = database, clock
        self._outage = Outage("api", clock, emit, rng)
        self._failed_s, self._is_over = 0.0, True  # when the last request failed, and whether that has ended
        self._watching: asyncio.Task[None] | None = None

    def failed(self, error: DatabaseUnavailable) -> None:
        """Of one statement that took too long nothing is logged, unless the readiness check fails too."""
        self._failed_s, self._is_over = self._clock.monotonic(), False
        if not took_too_long(error.__cause__):
            self._outage.failed(error)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="api outage")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        while True:
            rest_s = await self._look()
            if self._is_over:
                break
            await asyncio.sleep(rest_s)
        self._watching = None

    async def _look(self) -> float:
        """The seconds until the next look."""
        try:
            await cluster.require_writable(self._database)
        except Exception as error:
            return self._outage.failed(error)
        quiet_s = self._clock.monotonic() - self._failed_s
        if quiet_s < QUIET_S:
            return min(RETRY_S_MAX, QUIET_S - quiet_s)
        self._outage.over()
        self._is_over = True
        return 0.0
