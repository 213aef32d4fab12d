"""What a program may do with an existing job: pause it, resume it, run it now, backfill missed fires."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sexton.clock import Clock
from sexton.domain.fault import Invalid
from sexton.domain.job import encoded_payload
from sexton.domain.schedule.backfill import BackfillSpec
from sexton.errors import InvalidSubmission
from sexton.operations import jobs
from sexton.operations.recurring import backfill
from sexton.operations.recurring.backfill import Backfill, Stopped
from sexton.operations.recurring.recurring_jobs import Pause
from sexton.operations.versions import AtVersion
from sexton.store.uuid7 import is_recurring
from sexton.store.work.jobs import JobView, show

from .caller import APP
from .error_translation import submission_faults
from .options import BackfillOptions
from .pools import Pools


class JobControl:
    def __init__(self, pools: Pools, clock: Clock) -> None:
        self._pools, self._clock = pools, clock

    async def pause(self, job_id: UUID, *, note: str | None, until: datetime | None) -> JobView:
        if until is not None and (until.tzinfo is None or not is_recurring(job_id)):
            raise InvalidSubmission("/until", "give an instant with an offset, and only for a recurring job")
        if note is not None and "\x00" in note:
            raise InvalidSubmission("/note", "contains a NUL character (U+0000), which PostgreSQL cannot store")
        async with (await self._pools.here()).transaction() as connection:
            try:
                return await jobs.pause(connection, APP, job_id, Pause(note, until), now=self._clock.database_now())
            except Invalid as fault:
                raise InvalidSubmission("/until", fault.message) from None

    async def resume(self, job_id: UUID) -> JobView:
        async with (await self._pools.here()).transaction() as connection:
            return await jobs.resume(connection, APP, job_id, now=self._clock.database_now())

    async def run(self, job_id: UUID, payload: Any, bound: Callable[[str, Any], Any]) -> JobView:
        """`bound` checks a payload against the function of its task, if this program has it."""
        now = self._clock.database_now()
        async with (await self._pools.here()).transaction() as connection:
            if payload is None:
                return await jobs.run_now(connection, APP, job_id, now=now)
            with submission_faults():
                given = encoded_payload(bound((await show(connection, job_id)).task, payload))
                return await jobs.run_now(connection, APP, job_id, payload=given, now=now)

    async def backfill(
        self,
        job_id: UUID,
        from_at: datetime,
        until: datetime | None,
        *,
        version: int | None,
        **options: Unpack[BackfillOptions],
    ) -> Backfill:
        now, monotonic = self._clock.database_now(), self._clock.monotonic
        async with (await self._pools.here()).transaction() as connection:
            with submission_faults():
                return await backfill.start(
                    connection,
                    APP,
                    AtVersion(job_id, version),
                    BackfillSpec(from_at, until, **options),
                    monotonic=monotonic,
                    now=now,
                )

    async def stop_backfill(self, job_id: UUID) -> Stopped:
        async with (await self._pools.here()).transaction() as connection:
            return await backfill.stop(connection, APP, job_id, now=self._clock.database_now())
