"""Health, readiness, and the API's answers while the database is unreachable or not usable."""

from __future__ import annotations

from typing import Any

import asyncpg

from sexton.store.database import Postgres
from sexton.store.fleet import cluster
from sexton.telemetry.events import ServiceFailed
from tests.api.support import Api, opened, problem
from tests.conftest import StartServer


async def test_a_ready_api_answers_that_it_is_ready(api: Api) -> None:
    """E7."""
    assert (await api.http.get("/healthz")).json() == {"status": "ok"}
    ready = await api.http.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert ready.json()["checks"].keys() == {"database", "migrations", "home"}


async def test_without_the_database_it_is_alive_but_not_ready(own_postgres_server: StartServer) -> None:
    """E7: 503 with Retry-After, without internals."""
    server = own_postgres_server()
    database = await Postgres.open(server.url("postgres"))
    async with opened(database) as api:
        server.stop()
        assert (await api.http.get("/healthz")).status_code == 200
        ready = await api.http.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert list(ready.json()["checks"]) == ["database"]
        for response in (
            await api.http.get("/v1/jobs"),
            await api.http.post("/v1/jobs", json={"handler": "a"}),
            await api.http.post("/v1/jobs/batch", json=[{"handler": "a"}]),
            await api.http.get("/v1/events"),
        ):
            problem(response, 503, "database_unavailable")
            assert "retry-after" in response.headers
    await database.close()


async def test_without_migrations_it_names_the_command(empty_database_url: str) -> None:
    database = await Postgres.open(empty_database_url)
    async with opened(database) as api:
        ready = await api.http.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["migrations"]["ok"]) == (503, False)
        assert "sexton migrate" in ready.json()["checks"]["migrations"]["detail"]
        for response in (await api.http.get("/v1/jobs"), await api.http.post("/v1/jobs", json={"handler": "a"})):
            assert "sexton migrate" in problem(response, 503, "not_ready")["detail"]
    await database.close()


async def test_a_clone_is_not_ready(database: Postgres, connection: asyncpg.Connection[Any]) -> None:
    """Rule "a clone does not fire"."""
    async with opened(database) as api:
        await cluster.adopt(connection)
        await connection.execute("UPDATE sexton.cluster SET system_identifier = 1")
        ready = await api.http.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["home"]["ok"]) == (503, False)


async def test_an_unexpected_error_is_logged_and_its_details_are_hidden(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """F2: 500 without internals; the log has it under the request id."""
    await connection.execute("ALTER FUNCTION sexton.submit_jobs RENAME TO secret_name")
    await connection.execute(
        "CREATE FUNCTION sexton.submit_jobs(jsonb, boolean, timestamptz) RETURNS TABLE (id uuid, created boolean) "
        "LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'the secret'; END$$"
    )
    response = await api.http.post("/v1/jobs", json={"handler": "a"}, headers={"X-Request-Id": "find-me"})
    problem(response, 500, "internal")
    assert "secret" not in response.text
    (failed,) = [event for event in api.events if isinstance(event, ServiceFailed)]
    assert "find-me" in failed.service
    api.events.clear()
