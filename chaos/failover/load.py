"""Submits jobs through the SDK at a steady rate, and records outside the database what was acknowledged.

The rate does not depend on the speed of the store. Half of the calls carry an idempotency key and are repeated until they are
acknowledged, as a careful caller would do. The others are made once; if one fails, its job counts as not acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sexton import App
from sexton.client.request import Request
from sexton.errors import SextonError

TICK_S = 0.02
AGAIN_S = 0.5  # until a call with a key is repeated
PATIENCE_S = 90.0  # at the end, for calls that have not finished
KEY = "order-"


class Call(NamedTuple):
    """An acknowledged call; times are monotonic."""

    sent_at: float
    acknowledged_at: float
    job_ids: tuple[UUID, ...]


class Load:
    def __init__(self, app: App, rate_per_s: float) -> None:
        self._app, self._batch = app, max(1, round(rate_per_s * TICK_S) - 1)
        self._tick_s = (self._batch + 1) / rate_per_s
        self._under_way: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.calls: list[Call] = []
        self.failures: Counter[str] = Counter()  # calls, by what the caller saw
        self.attempted_count = 0  # jobs; a job with a key counts once, however often it was sent
        self.found_again_count = 0  # calls with a key whose first answer was lost: the job already existed

    @property
    def acknowledged(self) -> list[UUID]:
        return [job_id for call in self.calls for job_id in call.job_ids]

    async def run(self) -> None:
        """Submits until stopped, then waits for the calls that have not finished."""
        began_at, ticks = time.monotonic(), 0
        while not self._stopping:
            while ticks * self._tick_s <= time.monotonic() - began_at:
                self._begin(self._insist(ticks))
                self._begin(self._once())
                ticks += 1
            await asyncio.sleep(self._tick_s / 4)
        async with asyncio.timeout(PATIENCE_S):
            while self._under_way:
                await asyncio.wait(self._under_way)

    def stop(self) -> None:
        self._stopping = True

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _once(self) -> None:
        self.attempted_count += self._batch
        await self._call([self._app.request("nap") for _ in range(self._batch)], time.monotonic())

    async def _insist(self, number: int) -> None:
        self.attempted_count += 1
        sent_at = time.monotonic()
        request = self._app.request("nap", key=f"{KEY}{number}")
        while True:
            if await self._call([request], sent_at):
                return
            await asyncio.sleep(AGAIN_S)

    async def _call(self, requests: Sequence[Request], sent_at: float) -> bool:
        try:
            answers = await self._app.submit_many(requests)
        except SextonError as error:
            self.failures[type(error).__name__] += 1
            return False
        except Exception as error:  # an error of the driver, which a caller should never see: the report shows it
            self.failures[f"{type(error).__module__}.{type(error).__name__}"] += 1
            return False
        self.found_again_count += sum(not answer.created for answer in answers)
        self.calls.append(Call(sent_at, time.monotonic(), tuple(answer.id for answer in answers)))
        return True
