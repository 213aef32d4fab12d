"""Waits for a job to end. It polls instead of listening, so it works through a pooler and after a lost connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from sexton.domain.duration import Duration, seconds
from sexton.errors import JobFailed, ResultTimeout
from sexton.store.work import jobs

from .background import Background
from .error_translation import submission_faults
from .pools import Pools

PAUSE_S_MIN, PAUSE_S_MAX = 0.01, 0.5
PAUSE_GROWTH = 1.5


class Results:
    def __init__(self, pools: Pools, background: Background) -> None:
        self._pools, self._background = pools, background

    async def wait(self, job_id: UUID, within: Duration | None) -> Any:
        """What the handler returned, as JSON gives it back."""
        with submission_faults():
            timeout_s = float("inf") if within is None else seconds(within, field="timeout")
        ending = await self._ending(job_id, timeout_s)
        if ending is None:
            raise ResultTimeout(f"job {job_id} has not ended after {timeout_s:g} s")
        if ending.status != "completed":
            error = ending.error
            raise JobFailed(ending.status, ending.reason if error is None else f"{error.type}: {error.message}")
        return None if ending.result_json is None else msgspec.json.decode(ending.result_json)

    def wait_sync(self, job_id: UUID, within: Duration | None) -> Any:
        return self._background.run(self.wait(job_id, within))

    async def _ending(self, job_id: UUID, timeout_s: float) -> jobs.Ending | None:
        database = await self._pools.here()
        time = asyncio.get_running_loop().time
        give_up_at = time() + timeout_s
        pause_s = PAUSE_S_MIN
        while True:
            async with database.connection() as connection:
                ending = await jobs.ending(connection, job_id)
            left_s = give_up_at - time()
            if ending is not None or left_s <= 0:
                return ending
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_S_MAX)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a submission. On the caller's connection the job exists only after the caller has committed."""

    id: UUID
    created: bool  # false: the idempotency key or an equal unique job already exists, and this is its job
    _results: Results = field(repr=False, compare=False)

    async def result(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109  (a wait that ends is not a cancelled one)
        """What the handler returned. `JobFailed` if the job ended otherwise, `ResultTimeout` if it has not ended yet."""
        return await self._results.wait(self.id, timeout)

    def result_sync(self, timeout: Duration | None = None) -> Any:
        return self._results.wait_sync(self.id, timeout)
