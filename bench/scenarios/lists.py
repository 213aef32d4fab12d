"""Lists with every filter over millions of jobs: a page of 50 from cursors all over their four weeks."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from bench.history import DAYS, fill
from bench.scenario import Figures, Options, Scenario, Target, percentile
from bench.testbed import Testbed
from sexton.store.database import Connection, Postgres
from sexton.store.uuid7 import floor
from sexton.store.views import overview, search, transitions
from sexton.store.views.search import ExecutionFilter, JobFilter
from sexton.store.work import jobs

JOBS = 300_000
PAGE = 50
LOOKS = 50

SINGLE: dict[str, dict[str, Any]] = {
    "newest": {},
    **{status: {"status": status} for status in ("pending", "running", "completed", "failed", "cancelled", "paused")},
    "name": {"name": "name-7"},
    "name_unknown": {"name": "nobody"},
    "tag": {"tag": "billing"},
    "tag_rare": {"tag": "tag-7"},
    "tenant": {"tenant": "default"},
    "tenant_rare": {"tenant": "rare"},
    "tenant_unknown": {"tenant": "nobody"},
    "queue": {"queue": "queue-5"},
    "queue_unknown": {"queue": "nobody"},
    "task": {"task": "send"},
    "task_rare": {"task": "seldom"},
}
COMBINED: dict[str, dict[str, Any]] = {
    "failed_tenant_rare": {"status": "failed", "tenant": "rare"},
    "completed_task": {"status": "completed", "task": "task-9"},
    "completed_tenant_rare": {"status": "completed", "tenant": "rare"},
    "pending_tenant": {"status": "pending", "tenant": "tenant-7"},
    "pending_task_rare": {"status": "pending", "task": "seldom"},
    "name_failed": {"name": "name-7", "status": "failed"},
    "tag_tenant": {"tag": "billing", "tenant": "tenant-7"},
    "queue_task": {"queue": "queue-5", "task": "seldom"},
}


async def run(testbed: Testbed, options: Options) -> Figures:
    monitor = testbed.server.monitor
    now: datetime = await monitor.fetchval("SELECT date_trunc('second', clock_timestamp())")
    started_at = time.perf_counter()
    await fill(monitor, options.jobs or JOBS, now, testbed.say)
    figures: Figures = {"fill_s": time.perf_counter() - started_at}
    figures["size_gib"] = await monitor.fetchval("SELECT pg_database_size(current_database()) / 1073741824.0::float8")

    database = await Postgres.open(testbed.server.url, size=1)
    async with database.connection() as connection:
        worst = 0.0
        for name, look in LOOKED_AT.items():
            testbed.say(f"looking: {name}")
            taken_ms, rows = await _time(connection, look, now)
            p95 = percentile(taken_ms, 95)
            if name in SINGLE or name == "submitted_hour":
                worst = max(worst, p95)
            figures[f"{name}_p50_ms"], figures[f"{name}_p95_ms"], figures[f"{name}_max_ms"] = (
                percentile(taken_ms, 50),
                p95,
                max(taken_ms),
            )
            figures[f"{name}_rows"] = rows
    await database.close()
    return {"single_p95_ms": worst, **figures}


Look = Callable[[Connection, datetime], Awaitable[int]]


def _listing(chosen: JobFilter) -> Look:
    async def look(connection: Connection, at: datetime) -> int:
        return len((await search.find_jobs(connection, chosen, before=floor(at), limit=PAGE)).rows)

    return look


def _history(chosen: ExecutionFilter) -> Look:
    async def look(connection: Connection, at: datetime) -> int:
        return len((await search.find_executions(connection, chosen, before=floor(at), limit=PAGE)).rows)

    return look


async def _hour(connection: Connection, at: datetime) -> int:
    chosen = JobFilter(submitted_from=at - timedelta(hours=1), submitted_until=at)
    return len((await search.find_jobs(connection, chosen, limit=PAGE)).rows)


async def _show(connection: Connection, at: datetime) -> int:
    found = await search.find_jobs(connection, JobFilter(), before=floor(at), limit=1)
    return len(await jobs.show_many(connection, [job.id for job in found.rows]))


async def _stats(connection: Connection, _at: datetime) -> int:
    return (await overview.stats(connection)).waiting_count


async def _queues(connection: Connection, _at: datetime) -> int:
    return len(await overview.queues(connection))


async def _tenants(connection: Connection, _at: datetime) -> int:
    return len(await overview.tenants(connection))


async def _tail(connection: Connection, at: datetime) -> int:
    return len(await transitions.since(connection, at))


LOOKED_AT: dict[str, Look] = {
    **{name: _listing(JobFilter(**chosen)) for name, chosen in {**SINGLE, **COMBINED}.items()},
    "submitted_hour": _hour,
    "executions": _history(ExecutionFilter()),
    "executions_failed": _history(ExecutionFilter(status="failed")),
    "show": _show,
    "stats": _stats,
    "queues": _queues,
    "tenants": _tenants,
    "tail": _tail,
}


async def _time(connection: Connection, look: Look, now: datetime) -> tuple[list[float], int]:
    """Milliseconds of each query, and the rows of all. The first query, which includes planning, counts too."""
    rng = Random(1)  # the same cursors every time
    taken_ms, rows = [], 0
    for _ in range(LOOKS):
        at = now - rng.random() * timedelta(days=DAYS)
        started_at = time.perf_counter()
        rows += await look(connection, at)
        taken_ms.append(1000 * (time.perf_counter() - started_at))
    return taken_ms, rows


SCENARIO = Scenario("lists", "every filter of a list, beside millions of jobs", {"single_p95_ms": Target(50, 20)}, run)
