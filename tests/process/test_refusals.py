"""The database answers, but refuses: rights, read-only, locks, missing tables. Each fault is injected under load and removed
again: clear log lines and problems, no tracebacks, and work continues by itself."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx
import pytest

from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster as home
from tests.sizes import size

from .apps import make
from .cluster import SHORT, Cluster, StartCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sexton import App
    from tests.conftest import StartServer

    Conn = asyncpg.Connection[asyncpg.Record]

FAULT_S = size("REFUSED_S", 3)
ROLE = "clerk"
LINES = 16  # of one process about one fault: at most one line when it begins and one when it ends, for each of its services
BACK_S_LIMIT = 15.0  # until work goes on after the end of a fault; chaos judges the promise of 5 s
ANSWER_S = 30.0  # longest wait for an answer over HTTP
KICK = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'"


@dataclass(frozen=True)
class Fault:
    name: str
    begin: tuple[str, ...]
    end: tuple[str, ...] = ()
    says: str = ""  # what a line of each process must contain, of the API only if it refuses; empty if there is nothing to log
    queues: str = ""  # a statement that waits for the others' locks until the end
    refuses: bool = True  # a submission over HTTP is refused while the fault lasts; otherwise it may also wait, or pass


FAULTS = (
    Fault(
        "rights revoked",
        (f"REVOKE ALL ON ALL TABLES IN SCHEMA sexton FROM {ROLE}",),
        (f"GRANT ALL ON ALL TABLES IN SCHEMA sexton TO {ROLE}",),
        "permission denied for table",
    ),
    Fault(
        "schema closed",
        (f"REVOKE ALL ON SCHEMA sexton FROM {ROLE}",),
        (f"GRANT ALL ON SCHEMA sexton TO {ROLE}",),
        "permission denied for schema sexton",
    ),
    Fault("role locked out", (f"ALTER ROLE {ROLE} NOLOGIN", KICK), (f"ALTER ROLE {ROLE} LOGIN",), "is not permitted to log in"),
    Fault(
        "closed to connections",
        ("UPDATE pg_database SET datallowconn = false WHERE datname = 'sexton'", KICK),
        ("UPDATE pg_database SET datallowconn = true WHERE datname = 'sexton'",),
        "not currently accepting connections",
    ),
    Fault(
        "connections revoked",
        ("REVOKE CONNECT ON DATABASE sexton FROM PUBLIC", KICK),
        ("GRANT CONNECT ON DATABASE sexton TO PUBLIC",),
        "permission denied for database",
    ),
    Fault(
        "connections used up",
        (f"ALTER ROLE {ROLE} CONNECTION LIMIT 0", KICK),
        (f"ALTER ROLE {ROLE} CONNECTION LIMIT -1",),
        "too many connections for role",
    ),
    Fault(
        "read-only by default",
        (f"ALTER ROLE {ROLE} SET default_transaction_read_only = on", KICK),
        (f"ALTER ROLE {ROLE} RESET default_transaction_read_only",),
        "accepts no writes",
    ),
    Fault(
        "a timeout of the role",
        (f"ALTER ROLE {ROLE} SET statement_timeout = '1ms'", KICK),
        (f"ALTER ROLE {ROLE} RESET statement_timeout",),
        refuses=False,
    ),
    # The warning comes after 3 s of contention: these two last until it is there.
    Fault(
        "table locked", ("BEGIN", "LOCK TABLE sexton.runs IN ACCESS EXCLUSIVE MODE"), ("COMMIT",), "contended", refuses=False
    ),
    Fault(
        "table to be rewritten",
        ("BEGIN", "TABLE sexton.runs"),
        ("COMMIT",),
        "contended",
        "VACUUM FULL sexton.runs",
        refuses=False,
    ),
    Fault("tables rewritten", ("VACUUM FULL sexton.jobs", "VACUUM FULL sexton.executions"), refuses=False),
    Fault("statistics dropped", ("DELETE FROM pg_statistic",), refuses=False),
    Fault(
        "table swapped out",
        ("ALTER TABLE sexton.runs RENAME TO runs_elsewhere",),
        ("ALTER TABLE sexton.runs_elsewhere RENAME TO runs",),
        "sexton migrate",
    ),
)


@pytest.mark.timeout(120 + 2 * FAULT_S * len(FAULTS))
async def test_a_database_that_refuses_is_logged_once_and_waited_for(
    own_postgres_server: StartServer, start_cluster: StartCluster, figure: Callable[[str], None]
) -> None:
    """D4, F6."""
    server = own_postgres_server()
    async with _clerk(server.url()) as (admin, url):
        cluster = start_cluster(url, **SHORT)
        for start in (cluster.worker, cluster.scheduler):
            start(start.__name__)
        await cluster.until_ready()
        api = cluster.api("api")
        await cluster.until(lambda: "api listening" in api.log, "the API to listen")
        (listens,) = re.findall(r"http://127\.0\.0\.1:\d+", api.log)
        async with make(server.url()) as app, httpx.AsyncClient(base_url=listens, timeout=ANSWER_S) as http:
            figures = [f"{fault.name} {await _suffer(fault, cluster, admin, server.url(), app, http)}" for fault in FAULTS]
    figure(f"lines per process and seconds to go on, of faults of {FAULT_S} s: " + ", ".join(figures))
    for name in ("worker", "scheduler", "api"):
        assert cluster[name].process.poll() is None, f"{name} has ended\n{cluster.logs()}"


async def _suffer(fault: Fault, cluster: Cluster, admin: Conn, url: str, app: App, http: httpx.AsyncClient) -> str:
    members = [cluster[name] for name in ("worker", "scheduler", "api")]
    before = {member.name: len(member.log) for member in members}
    async with AsyncExitStack() as waiting:
        for statement in fault.begin:
            await admin.execute(statement)
        if fault.queues:
            await waiting.enter_async_context(_queued(url, fault.queues))
        submitting = asyncio.create_task(_submit(http))
        await asyncio.sleep(FAULT_S)  # only the duration of a fault depends on the clock
        for member in members if fault.refuses else members[:2]:
            await cluster.until(
                lambda log=member: fault.says in log.log[before[log.name] :],  # type: ignore[misc]
                f"{member.name} to say: {fault.says}",
            )
        if fault.refuses:
            await asyncio.wait([submitting])
        for statement in fault.end:
            await admin.execute(statement)
        answer = await submitting
    _check(answer, fault)
    ended = len(cluster.lines("end"))
    await app.submit("nap", {"seconds": 0.0})
    back_s = await cluster.until(lambda: len(cluster.lines("end")) > ended, f"work to go on after: {fault.name}")
    back_s += await cluster.until(lambda: _is_accepted(http), f"the API to accept jobs after: {fault.name}")
    assert back_s < BACK_S_LIMIT, fault.name
    if fault.refuses:
        api = members[2]
        await cluster.until(lambda: "database back" in api.log[before[api.name] :], f"the API to say that {fault.name} is over")
    logs = [member.log[before[member.name] :] for member in members]
    for log in logs:
        assert "Traceback" not in log, f"{fault.name}: {log}"
        assert len(log.splitlines()) <= LINES, f"{fault.name}: {log}"
    return f"{max(len(log.splitlines()) for log in logs)} / {back_s:.1f} / {answer.status_code}"


def _check(answer: httpx.Response, fault: Fault) -> None:
    """A submission is accepted, or the answer is a problem that says why and that it may be repeated."""
    if answer.status_code == 201 and not fault.refuses:
        return
    assert answer.status_code == 503, f"{fault.name}: {answer.text}"
    assert answer.headers["content-type"].startswith("application/problem+json"), fault.name
    problem = answer.json()
    assert problem["code"] in ("database_unavailable", "contention", "not_ready"), f"{fault.name}: {problem}"
    assert problem["detail"], fault.name
    assert "Traceback" not in answer.text, fault.name


async def _submit(http: httpx.AsyncClient) -> httpx.Response:
    return await http.post("/v1/jobs", json={"handler": "nap", "payload": {"seconds": 0.0}})


async def _is_accepted(http: httpx.AsyncClient) -> bool:
    return (await _submit(http)).status_code == 201


@asynccontextmanager
async def _queued(admin_url: str, statement: str) -> AsyncIterator[None]:
    """The statement waits for a lock until another session gives it back, and all later ones wait behind it."""
    connection = await asyncpg.connect(admin_url)
    try:
        waiting = asyncio.create_task(connection.execute(statement))
        yield
        await waiting
    finally:
        connection.terminate()


@asynccontextmanager
async def _clerk(url: str) -> AsyncIterator[tuple[Conn, str]]:
    """Sexton's tables belong to a role with few rights, which can lose those as well."""
    admin = await asyncpg.connect(url, server_settings={"allow_system_table_mods": "on"})
    try:
        await admin.execute(f"CREATE ROLE {ROLE} LOGIN; GRANT CREATE ON DATABASE sexton TO {ROLE}")
        parts = urlsplit(url)
        own_url = urlunsplit(parts._replace(netloc=f"{ROLE}@{parts.netloc.partition('@')[2]}"))
        database = await Postgres.open(own_url)
        await migrations.migrate(database)
        await home.require_home(database)
        await database.close()
        yield admin, own_url
    finally:
        await admin.close()
