"""Shared by store tests: a fixed instant, and the operations of a submitter and a worker in one line each."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sexton.domain import run
from sexton.domain.job import Submission, submission
from sexton.domain.outcome import ErrorInfo, Failed, Outcome
from sexton.store.fleet import workers
from sexton.store.work import jobs, runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    import asyncpg

    from sexton.domain.run import Claimed, Lease
    from sexton.domain.targets import Target
    from sexton.store.database import Connection

    Conn = asyncpg.Connection[asyncpg.Record]

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday
BROKEN = Failed(ErrorInfo("ValueError", "broken"), permanent=True)
FLAKY = Failed(ErrorInfo("ValueError", "flaky"))
GRACE_S = 10.0


def after(**span: float) -> datetime:
    return NOW + timedelta(**span)


async def enlist(
    connection: Connection,
    *,
    queues: Sequence[str] = ("default",),
    tasks: Sequence[str] = ("a",),
    now: datetime = NOW,
    **more: Any,
) -> UUID:
    worker_id = uuid4()
    await workers.enlist(connection, worker_id, name="w", queues=queues, tasks=tasks, concurrency=10, now=now, **more)
    return worker_id


async def submit(
    connection: Connection, task: str | Target = "a", payload: Any = None, *, now: datetime = NOW, **options: Any
) -> UUID:
    """One job; its id, whether new or found."""
    document = submission(task, {} if payload is None else payload, **options)
    (answer,) = await jobs.submit(connection, [document], now=now)
    return answer.id


async def submit_many(connection: Connection, documents: Sequence[Submission], *, now: datetime = NOW) -> list[UUID]:
    return [answer.id for answer in await jobs.submit(connection, documents, now=now)]


async def claim(
    connection: Connection,
    worker_id: UUID,
    *,
    limit: int = 100,
    queues: Sequence[str] = ("default",),
    tasks: Sequence[str] = ("a",),
    at_most_once: bool = True,
    now: datetime = NOW,
) -> list[Claimed]:
    return await runs.claim(
        connection,
        worker_id=worker_id,
        queues=queues,
        tasks=tasks,
        limit=limit,
        grace_s=GRACE_S,
        ahead=not at_most_once,
        now=now,
    )


async def claim_suspects(
    connection: Connection,
    worker_id: UUID | None = None,
    wanted: int = 100,
    *,
    queues: Sequence[str] = ("default",),
    tasks: Sequence[str] = ("a",),
    now: datetime = NOW,
) -> list[Claimed]:
    """By a new worker in quarantine, unless one is given."""
    if worker_id is None:
        worker_id = await enlist(connection, queues=queues, tasks=tasks, now=now, quarantine=True)
    return await runs.claim_suspects(connection, worker_id, queues=queues, tasks=tasks, wanted=wanted, grace_s=GRACE_S, now=now)


async def finish(
    connection: Connection, lease: Lease, outcome: Outcome, *, now: datetime = NOW, **told: Any
) -> runs.Finished | None:
    """`None`: the fence did not match."""
    answers = await runs.finish(connection, [run.report(lease, outcome, Random(1), **told)], now=now)
    return answers[0] if answers else None


async def bury(connection: Connection, worker_id: UUID, *, now: datetime = NOW, **options: Any) -> UUID:
    """A job that failed permanently; its id."""
    job_id = await submit(connection, now=now, **options)
    for claimed in await claim(connection, worker_id, now=now):
        assert claimed.lease.job_id == job_id, "bury needs an otherwise empty queue"
        await finish(connection, claimed.lease, BROKEN, now=now)
    return job_id


async def status(connection: Connection, job_id: UUID) -> str:
    return (await jobs.show(connection, job_id)).status


async def run_row(connection: Connection, job_id: UUID) -> dict[str, Any] | None:
    rows = await connection.fetch("SELECT * FROM sexton.runs WHERE job_id = $1", job_id)
    assert len(rows) <= 1, "a one-time job has one run"
    return dict(rows[0]) if rows else None


async def snapshot(connection: Connection) -> dict[str, list[str]]:
    """All rows that jobs leave behind, to check that nothing changed."""
    tables = [
        "jobs",
        "job_tags",
        "job_versions",
        "runs",
        "executions",
        "endings",
        "dead_letters",
        "idempotency_keys",
        "unique_keys",
        "live_output",
        "workers",
    ]
    return {
        table: [row[0] for row in await connection.fetch(f"SELECT to_jsonb(t)::text FROM sexton.{table} t ORDER BY 1")]
        for table in tables
    }


async def until_blocked(observer: Connection, blocked: Conn, work: asyncio.Future[Any]) -> None:
    """Returns once the other connection waits for a lock; fails if its operation ended instead."""
    pid = blocked.get_server_pid()
    while not work.done():
        (row,) = await observer.fetch("SELECT cardinality(pg_blocking_pids($1)) > 0 AS waits", pid)
        if row["waits"]:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"it did not wait: {work!r}")


async def blocked_task(observer: Connection, blocked: Conn, work: Awaitable[Any]) -> asyncio.Future[Any]:
    """The operation, started on the other connection and waiting for a lock there."""
    task = asyncio.ensure_future(work)
    await until_blocked(observer, blocked, task)
    return task


def plain(text: str | None) -> Any:
    return None if text is None else json.loads(text)
