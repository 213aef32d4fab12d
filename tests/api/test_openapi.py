"""The OpenAPI document: complete, valid, and obeyed by the API under fuzzing from it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from sexton.api.process import ApiProcess
from sexton.clock import SystemClock
from sexton.ids import entropy
from sexton.settings import Settings
from sexton.store.database import Postgres
from tests.api.support import Api

EXAMPLES = int(os.environ.get("SEXTON_TEST_EXAMPLES", "6"))
BATCH = "/v1/jobs/batch"  # a partial batch answers 200 with a problem per job, so invalid jobs are accepted
ACQUIRE = "/v1/workers/acquire"
CALLS = {
    ("/healthz", "get"),
    ("/readyz", "get"),
    ("/schema", "get"),
    ("/v1/dead-letters", "delete"),
    ("/v1/dead-letters", "get"),
    ("/v1/dead-letters/replay", "post"),
    ("/v1/dead-letters/{letter_id}", "delete"),
    ("/v1/dead-letters/{letter_id}", "get"),
    ("/v1/events", "get"),
    ("/v1/executions", "get"),
    ("/v1/executions/{execution_id}", "get"),
    ("/v1/jobs", "get"),
    ("/v1/jobs", "post"),
    (BATCH, "post"),
    ("/v1/jobs/{job_id}", "delete"),
    ("/v1/jobs/{job_id}", "get"),
    ("/v1/jobs/{job_id}", "patch"),
    ("/v1/jobs/{job_id}/backfill", "delete"),
    ("/v1/jobs/{job_id}/backfill", "post"),
    ("/v1/jobs/{job_id}/executions", "get"),
    ("/v1/jobs/{job_id}/retry", "post"),
    ("/v1/jobs/{job_id}/run", "post"),
    ("/v1/jobs/{job_id}/status", "patch"),
    ("/v1/jobs/{job_id}/why", "get"),
    ("/v1/limits", "get"),
    ("/v1/limits/{key}", "delete"),
    ("/v1/limits/{key}", "get"),
    ("/v1/limits/{key}", "put"),
    ("/v1/nodes", "get"),
    ("/v1/queues", "get"),
    ("/v1/queues/{name}", "delete"),
    ("/v1/queues/{name}", "get"),
    ("/v1/queues/{name}", "put"),
    ("/v1/queues/{name}/status", "patch"),
    ("/v1/runs/complete", "post"),
    ("/v1/runs/{run_id}/complete", "post"),
    ("/v1/runs/{run_id}/fail", "post"),
    ("/v1/runs/{run_id}/heartbeat", "post"),
    ("/v1/runs/{run_id}/release", "post"),
    ("/v1/schedules/preview", "post"),
    ("/v1/stats", "get"),
    ("/v1/subscriptions", "get"),
    ("/v1/subscriptions/{name}", "delete"),
    ("/v1/subscriptions/{name}", "get"),
    ("/v1/subscriptions/{name}", "put"),
    ("/v1/subscriptions/{name}/deliveries", "get"),
    ("/v1/subscriptions/{name}/deliveries/replay", "post"),
    ("/v1/subscriptions/{name}/deliveries/{delivery_id}/replay", "post"),
    ("/v1/tenants", "get"),
    ("/v1/tenants/{name}", "delete"),
    ("/v1/tenants/{name}", "get"),
    ("/v1/tenants/{name}", "put"),
    ("/v1/tenants/{name}/status", "patch"),
    ("/v1/workers", "get"),
    ("/v1/workers/acquire", "post"),
    ("/v1/workers/{worker_id}", "delete"),
    ("/v1/workers/{worker_id}/heartbeat", "post"),
}
KINDS = cycle([{"delay": "1h"}, {"cron": "@daily"}])
# Rules between fields (run_at or delay, not both), NUL and depth inside a payload: a schema cannot express them.
UNSAYABLE = ("positive_data_acceptance",)

# Calls without parameters, or with any text as a name: every request is valid.
WITHOUT_INPUT = (
    "/healthz",
    "/readyz",
    "/schema",
    "/v1/limits/{key}",
    "/v1/nodes",
    "/v1/queues",
    "/v1/queues/{name}",
    "/v1/stats",
    "/v1/subscriptions/{name}",
    "/v1/tenants",
    "/v1/tenants/{name}",
    "/v1/workers",
)


@pytest.fixture
def address(database_url: str) -> Iterator[str]:
    """A real server in a thread of its own."""
    ready: list[str] = []
    begun, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        database = await Postgres.open(database_url)
        chosen = Settings(api_port=0)
        api = ApiProcess(database, chosen, clock=SystemClock(), emit=lambda _event: None, rng=entropy())

        def tell(where: str) -> None:
            ready.append(where)
            begun.set()

        await api.run(stop, ready=tell)
        await database.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    begun.wait(20)
    yield ready[0]
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(20)


async def test_every_call_is_described(api: Api) -> None:
    """F2: with an operation id, a summary, every answer, and problems as problem documents."""
    document = (await api.http.get("/schema")).json()
    assert document == (await api.http.get("/schema/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    calls = {(path, method): call for path, calls in document["paths"].items() for method, call in calls.items()}
    assert calls.keys() == CALLS
    ids = [call["operationId"] for call in calls.values()]
    assert len(set(ids)) == len(ids)
    for where, call in calls.items():
        assert call["summary"], where
        assert call["tags"][0] in {tag["name"] for tag in document["tags"]}, where
        for status, answer in call["responses"].items():
            assert answer["description"], (where, status)
            if status >= "400" and where != ("/readyz", "get"):
                assert list(answer["content"]) == ["application/problem+json"], (where, status)


@pytest.mark.timeout(3600)
def test_the_api_obeys_its_document(address: str) -> None:
    """F2: fuzzed from the document, with data it allows and data it forbids: no 5xx, answers as described.

    SEXTON_TEST_EXAMPLES=500 for a long look."""
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{address}/schema").exclude(path="/v1/events")
    failures: list[str] = []
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            is_open = operation.path in WITHOUT_INPUT and operation.method in ("get", "delete")
            if mode is GenerationMode.NEGATIVE and is_open:
                continue
            try:
                _fuzz(operation, mode, address)
            except (Exception, BaseExceptionGroup) as error:
                failures.append(f"{operation.label} ({mode.value}): {type(error).__name__}: {error} {_inner(error)}")
    assert not failures, "\n\n".join(failures)


def _fuzz(operation: Any, mode: GenerationMode, address: str) -> None:
    names = (*UNSAYABLE, *(("negative_data_rejection",) if operation.path == BATCH else ()))
    excluded = [CHECKS.get_one(name) for name in names]
    aims = mode is GenerationMode.POSITIVE and "{job_id}" in operation.path

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES < 50,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if EXAMPLES >= 50 else [])],
        suppress_health_check=list(HealthCheck),
    )
    def fuzz(case: Any) -> None:
        if aims:
            case.path_parameters["job_id"] = _pending_job(address, next(KINDS))  # a random id does not exist
            (case.query or {}).pop("wait", None)  # no worker runs it
        if operation.path == ACQUIRE and mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body["wait"] = 0
        case.call_and_validate(excluded_checks=excluded)

    fuzz()


def _pending_job(address: str, when: dict[str, str]) -> str:
    response = httpx.post(f"{address}/v1/jobs", json={"handler": "a", **when})
    return str(response.json()["id"])


def _inner(error: BaseException) -> str:
    return " | ".join(str(inner) for inner in getattr(error, "exceptions", ()))
