"""Health, readiness, and the API's answers while the database is unreachable or not usable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from sexton.api.outage_log import QUIET_S, OutageLog
from sexton.clock import ManualClock
from sexton.errors import DatabaseRefused, DatabaseUnavailable
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster
from sexton.telemetry.events import DatabaseAwaited, DatabaseBack, DatabaseLost, ServiceFailed
from tests.api.support import Api, opened, problem
from tests.conftest import StartServer
from tests.rig import NOW


async def test_a_ready_api_answers_that_it_is_ready(api: Api) -> None:
    """E7."""
    assert (await api.http.get("/healthz")).json() == {"status": "ok"}
    ready = await api.http.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert ready.json()["checks"].keys() == {"database", "migrations", "writable", "home"}


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


@dataclass(frozen=True)
class Fault:
    name: str
    begin: tuple[str, ...]
    end: tuple[str, ...]
    check: str  # that fails
    says: str


KICK = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'"
FAULTS = (
    Fault(
        "rights",
        ("REVOKE ALL ON sexton.runs FROM clerk",),
        ("GRANT ALL ON sexton.runs TO clerk",),
        "writable",
        "the role has no right to SELECT on sexton.runs; grant it",
    ),
    Fault(
        "a right to write",
        ("REVOKE INSERT ON sexton.jobs FROM clerk",),
        ("GRANT INSERT ON sexton.jobs TO clerk",),
        "writable",
        "INSERT on sexton.jobs",
    ),
    Fault(
        "a table",
        ("ALTER TABLE sexton.runs RENAME TO away",),
        ("ALTER TABLE sexton.away RENAME TO runs",),
        "writable",
        "the table sexton.runs does not exist",
    ),
    Fault(
        "a server that has become read-only",
        ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"),
        (
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        ),
        "writable",
        "accepts no writes",
    ),
    Fault("its login", ("ALTER ROLE clerk NOLOGIN", KICK), ("ALTER ROLE clerk LOGIN",), "database", "not permitted to log in"),
    Fault(
        "the database",
        ("UPDATE pg_database SET datallowconn = false WHERE datname = 'sexton'", KICK),
        ("UPDATE pg_database SET datallowconn = true WHERE datname = 'sexton'",),
        "database",
        "not currently accepting connections",
    ),
)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110  (no notification for this)
            await asyncio.sleep(0.02)


async def test_where_every_submission_is_refused_it_is_not_ready_and_says_so_once(own_postgres_server: StartServer) -> None:
    """E7, F6: one line per outage, whatever the requests, and one when it is over."""
    server = own_postgres_server()
    admin = await asyncpg.connect(server.url())
    await admin.execute("CREATE ROLE clerk LOGIN; GRANT CREATE ON DATABASE sexton TO clerk")
    parts = urlsplit(server.url())
    database = await Postgres.open(urlunsplit(parts._replace(netloc=f"clerk@{parts.netloc.rpartition('@')[2]}")))
    await migrations.migrate(database)
    await cluster.require_home(database)
    async with opened(database) as api:

        async def readiness() -> dict[str, Any]:
            ready: dict[str, Any] = (await api.http.get("/readyz")).json()
            return ready

        async def is_refused() -> bool:
            return not (await readiness())["ready"]

        async def is_back() -> bool:
            return any(isinstance(event, DatabaseBack) for event in api.events)

        for fault in FAULTS:
            assert (await readiness())["ready"], fault.name
            api.events.clear()
            for statement in fault.begin:
                await admin.execute(statement)
            await until(is_refused)
            for _ in range(3):
                answer = await api.http.post("/v1/jobs", json={"handler": "a"})
                assert answer.status_code == 503, fault.name
            failed = [name for name, check in (await readiness())["checks"].items() if not check["ok"]]
            assert failed == [fault.check], fault.name
            assert fault.says in (await readiness())["checks"][fault.check]["detail"], fault.name
            for statement in fault.end:
                await admin.execute(statement)
            await until(is_back)
            assert (await api.http.post("/v1/jobs", json={"handler": "a"})).status_code == 201, fault.name
            told = [type(event) for event in api.events if not isinstance(event, DatabaseAwaited)]
            assert told == [DatabaseLost, DatabaseBack], fault.name
            assert sum(isinstance(event, DatabaseAwaited) for event in api.events) <= 1, fault.name
    await database.close()
    await admin.close()


async def test_a_request_that_the_database_refuses_is_logged(api: Api, connection: asyncpg.Connection[Any]) -> None:
    """F6: without any readiness check."""
    await connection.execute("ALTER TABLE sexton.runs RENAME TO away")
    for _ in range(3):
        problem(await api.http.post("/v1/jobs", json={"handler": "a"}), 503, "not_ready")
    assert [type(event) for event in api.events] == [DatabaseLost]
    await connection.execute("ALTER TABLE sexton.away RENAME TO runs")


async def test_an_outage_that_the_check_does_not_see_is_one_line(api: Api) -> None:
    """F6: it lasts as long as requests fail."""
    clock = ManualClock(NOW)
    outages = OutageLog(api.database, clock=clock, emit=api.events.append, rng=api.state.rng)
    for _ in range(5):
        outages.failed(DatabaseRefused("permission denied for function submit_jobs", "grant it"))
        clock.move(timedelta(seconds=QUIET_S / 2))
        await outages._look()
    assert [type(event) for event in api.events] == [DatabaseLost]
    clock.move(timedelta(seconds=QUIET_S))
    await outages._look()
    assert [type(event) for event in api.events] == [DatabaseLost, DatabaseBack]
    await outages.close()


async def test_a_statement_that_takes_too_long_is_no_outage(api: Api) -> None:
    """F6."""
    async with api.database.connection() as connection:
        with pytest.raises(DatabaseUnavailable) as late:
            await connection.execute("SET statement_timeout = '1ms'; SELECT pg_sleep(1)")
        await connection.execute("RESET statement_timeout")
    api.state.outage_log.failed(late.value)
    watching = api.state.outage_log._watching
    assert watching is not None
    await watching
    assert api.events == []


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
