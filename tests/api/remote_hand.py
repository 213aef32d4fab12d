"""A remote worker controlled by the test: one call of the protocol per line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from tests.api.support import Api


@dataclass
class Hand:
    api: Api
    worker_id: str | None = None
    tasks: tuple[str, ...] = ("a",)

    async def ask(self, **asked: Any) -> httpx.Response:
        """An acquire, which by default does not wait."""
        known = {} if self.worker_id is None else {"worker_id": self.worker_id}
        return await self.api.http.post(
            "/v1/workers/acquire", json={"tasks": list(self.tasks), "wait": 0, **known, **asked}, timeout=40
        )

    async def acquire(self, **asked: Any) -> list[dict[str, Any]]:
        response = await self.ask(**asked)
        assert response.status_code == 200, response.text
        self.worker_id = response.json()["worker_id"]
        runs: list[dict[str, Any]] = response.json()["runs"]
        return runs

    async def one(self, **asked: Any) -> dict[str, Any]:
        (run,) = await self.acquire(**asked)
        return run

    async def beat(self, **fields: Any) -> httpx.Response:
        return await self.api.http.post(f"/v1/workers/{self.worker_id}/heartbeat", json=fields)

    async def report(self, run: dict[str, Any], verb: str, **fields: Any) -> httpx.Response:
        body = {"lease": run["lease"], **fields}
        return await self.api.http.post(f"/v1/runs/{run['run_id']}/{verb}", json=body)
