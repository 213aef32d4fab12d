"""Shared by the tests of the API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx
from litestar import Litestar

from sexton.api import app as api_app
from sexton.api.state import ApiState
from sexton.clock import Clock, SystemClock
from sexton.domain import run
from sexton.domain.outcome import ErrorInfo, Failed
from sexton.ids import entropy
from sexton.settings import Settings
from sexton.store.database import Connection, Postgres
from sexton.store.fleet import workers
from sexton.store.work import runs
from sexton.telemetry.events import Event

PROBLEM = "application/problem+json"


@dataclass
class Api:
    app: Litestar
    http: httpx.AsyncClient
    database: Postgres
    events: list[Event] = field(default_factory=list)

    @property
    def state(self) -> ApiState:
        state: ApiState = self.app.state["api"]
        return state

    async def submit(self, **job: Any) -> dict[str, Any]:
        response = await self.http.post("/v1/jobs", json={"handler": "a", **job})
        assert response.status_code == 201, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def count(self, table: str = "jobs") -> int:
        async with self.database.connection() as connection:
            rows = await connection.fetch(f"SELECT count(*) FROM sexton.{table}")
        return int(rows[0][0])


@asynccontextmanager
async def opened(database: Postgres, *, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Api]:
    heard: list[Event] = []
    app = api_app.create(database, Settings(**settings), clock=clock or SystemClock(), emit=heard.append, rng=entropy())
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://sexton") as http:
        api = Api(app, http, database, heard)
        yield api
    await api.state.close()


def problem(response: httpx.Response, status: int, code: str, *pointers: str) -> dict[str, Any]:
    """Checks that this is a complete problem document, and that it names these faults."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    document: dict[str, Any] = response.json()
    assert (document["status"], document["code"]) == (status, code), document
    assert document["request_id"] == response.headers["x-request-id"]
    assert document["detail"]
    if pointers:
        assert [fault["pointer"] for fault in document["errors"]] == list(pointers), document
    return document


async def enlist(connection: Connection, *tasks: str, queues: Sequence[str] = ("default",)) -> UUID:
    worker_id = uuid4()
    await workers.enlist(connection, worker_id, name="here", queues=list(queues), tasks=list(tasks), concurrency=4)
    return worker_id


async def bury(database: Postgres, *tasks: str) -> None:
    """Claims the ready runs and lets them fail permanently."""
    async with database.transaction() as connection:
        worker_id = await enlist(connection, *(tasks or ("a",)))
        leases = await runs.claim(
            connection, worker_id=worker_id, queues=["default"], tasks=list(tasks or ("a",)), limit=1000, grace_s=10.0
        )
        error = Failed(ErrorInfo(type="ValueError", message="no"), permanent=True)
        await runs.finish(
            connection, [run.report(claimed.lease, error, entropy(), started_s=0.0, took_s=0.01) for claimed in leases]
        )
