"""The steady load: a fixed number of jobs per second, due one to five seconds ahead, most through the SDK and some over
HTTP."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Any

import httpx

from .app import PAD, make

TICK_S = 0.1
AHEAD_S = (1.0, 5.0)
OVER_HTTP = 0.05
SHARES = {"note": 0.88, "flaky": 0.05, "doomed": 0.01, "limited": 0.06}
RECURRING = 0.05  # share of the rate that comes from schedules that fire every five seconds
EVERY_S = 5


class Load:
    def __init__(self, url: str, api: str, rate_per_s: float, seed: int) -> None:
        self._app, self._http = make(url), httpx.AsyncClient(base_url=api, timeout=30)
        self._rate, self._rng = rate_per_s, Random(seed)
        self.submitted: Counter[str] = Counter()
        self.late_s = 0.0  # the longest that submitting was behind its rate

    @property
    def count(self) -> int:
        return sum(self.submitted.values())

    async def begin(self) -> int:
        """Creates the recurring jobs. Returns their number."""
        number = max(1, round(self._rate * RECURRING * EVERY_S))
        requests = [self._app.schedule_request("tick", {}, every=f"{EVERY_S}s", name=f"soak-{n}") for n in range(number)]
        await self._app.schedule_many(requests)
        return number

    async def run(self, span_s: float) -> None:
        """Keeps its rate, however slow the store is."""
        one_time = self._rate * (1 - RECURRING)
        began_s, given = time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < span_s:
            owed = int(passed_s * one_time) - given
            if owed > 0:
                await self._submit(owed)
                given += owed
                self.late_s = max(self.late_s, time.monotonic() - began_s - passed_s)
            await asyncio.sleep(max(0.0, TICK_S - (time.monotonic() - began_s - passed_s)))

    async def close(self) -> None:
        await self._http.aclose()
        await self._app.close()

    async def _submit(self, count: int) -> None:
        kinds = self._rng.choices(list(SHARES), list(SHARES.values()), k=count)
        over_http = round(count * OVER_HTTP)
        now = time.time()
        jobs = [(kind, self._payload(), datetime.fromtimestamp(now + self._rng.uniform(*AHEAD_S), UTC)) for kind in kinds]
        requests = [self._app.request(kind, payload, run_at=at) for kind, payload, at in jobs[over_http:]]
        sending: list[Any] = [self._app.submit_many(requests)] if requests else []
        for kind, payload, at in jobs[:over_http]:
            body = {"handler": kind, "payload": payload, "run_at": at.isoformat()}
            sending.append(self._post(body))
        await asyncio.gather(*sending)
        self.submitted.update(kinds)

    async def _post(self, body: dict[str, Any]) -> None:
        response = await self._http.post("/v1/jobs", json=body)
        if response.status_code != 201:
            raise RuntimeError(f"a submission was answered with {response.status_code}: {response.text[:300]}")

    def _payload(self) -> dict[str, Any]:
        return {"number": self._rng.getrandbits(31), "pad": PAD}
