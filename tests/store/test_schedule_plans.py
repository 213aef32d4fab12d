"""The plans of the statements of recurring jobs, pinned: on tables that were empty when they were planned, and with the same
cached plans beside 50,000 schedules and their runs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from sexton.domain.partition import ALL
from sexton.operations.recurring import recurring_jobs
from sexton.operations.versions import AtVersion
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.sql import statements
from sexton.store.work import schedules
from tests.callers import TESTER
from tests.sizes import size
from tests.store.support import NOW, after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.store.support import Conn

pytestmark = [pytest.mark.made_up_rows, pytest.mark.timeout(120)]

MANY = size("BACKLOG", 20_000) // 2
SCHEDULES = f"""
INSERT INTO sexton.jobs_recurring
  (id, task, tenant, queue, lane, name, payload, at_most_once, submitted_at, schedule, plan_at, plan_cursor_at)
SELECT encode(set_byte(i, 0, get_byte(i, 0) | 128), 'hex')::uuid, 'a', 't' || n % 100, 'default', 2, 'n' || n, '{{}}', false,
  $1, '{{"cron": "0 * * * *"}}', $1::timestamptz + interval '50 minutes', $1::timestamptz + interval '1 hour'
FROM (SELECT n, uuid_send(gen_random_uuid()) AS i FROM generate_series(1, {MANY}) n) s
"""
RUNS = """
INSERT INTO sexton.runs
  (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task, overlap)
SELECT gen_random_uuid(), j.id, $1::timestamptz, $1::timestamptz, 2, sexton.partition_of(j.id), false, 'waiting', 'schedule',
  'default', j.tenant, 'a', 1
FROM sexton.jobs_recurring j
"""
JOB_ID = UUID(int=(1 << 127) + 2)

# name -> arguments, and the index that it must use
HOT: dict[str, tuple[list[Any], str]] = {
    "to_plan": ([NOW, list(ALL), 1000, 0.0, "2026a", 10.0, "{}"], "jobs_to_plan"),
    "of_ids": ([NOW, f"{{{JOB_ID}}}", "2026a"], "jobs_recurring_pkey"),
    "promote_alone": ([NOW, list(ALL), 1000, "{}"], "runs_due_beside"),
    "released": ([list(ALL), 1000, "{}"], "runs_blocked"),
    "competing_runs": ([NOW, f"{{{JOB_ID}}}"], "run_fires_once"),
    "due_to_resume": ([NOW, 100], "jobs_to_resume"),
    "next_resume": ([NOW], "jobs_to_resume"),
    "lock_job": ([JOB_ID], "jobs_recurring_pkey"),
    "plan": ([NOW, "[]", "2026a"], "jobs_recurring_pkey"),
    "postpone": ([NOW, JOB_ID, 1], "jobs_recurring_pkey"),
    "fail": ([NOW, JOB_ID, 1, "why"], "jobs_recurring_pkey"),
    "end": ([NOW, JOB_ID, "cancelled", "why"], "jobs_recurring_pkey"),
    "fire_now": ([NOW, JOB_ID, "{}"], "jobs_recurring_pkey"),
}


@pytest.fixture
async def as_service(database_url: str) -> AsyncIterator[Conn]:
    connection = await asyncpg.connect(database_url, server_settings={**_SERVER_SETTINGS, "statement_timeout": "60s"})
    await connection.execute("ALTER TABLE sexton.runs DISABLE TRIGGER test_only_watch")
    yield connection
    await connection.close()


def _literal(value: Any) -> str:
    match value:
        case bool() | int() | float():
            return str(value).lower()
        case list():
            return "ARRAY[" + ", ".join(_literal(one) for one in value) + "]"
        case _:
            return f"'{value}'"


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


async def _plan(connection: Conn, name: str) -> dict[str, Any]:
    arguments = ", ".join(map(_literal, HOT[name][0]))
    plan: dict[str, Any] = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot_{name} ({arguments})"))[0]
    return plan


@pytest.mark.parametrize("crowded", [False, True], ids=["empty", "crowded"])
async def test_hot_statements_use_their_index(as_service: Conn, crowded: bool) -> None:
    """B8, B11."""
    for name in HOT:
        await as_service.execute(f"PREPARE hot_{name} AS {statements('sexton.store.work.schedules')[name]}")
        await _plan(as_service, name)
    if crowded:
        await as_service.execute(SCHEDULES, NOW)
        await as_service.execute(RUNS, after(hours=1))
        await as_service.execute("ANALYZE sexton.runs")
        await as_service.execute("ANALYZE sexton.jobs_recurring")
    for name, (_, index) in HOT.items():
        plan = await _plan(as_service, name)
        nodes = list(_nodes(plan["Plan"]))
        used = {str(node["Index Name"]) for node in nodes if "Index Name" in node}
        walks = [
            node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] in ("runs", "jobs_recurring")
        ]
        assert index in used, f"{name} should go by {index}:\n{json.dumps(plan, indent=1)}"
        assert walks == [], f"{name} walks a table:\n{json.dumps(plan, indent=1)}"


async def _rows_read(connection: Conn) -> int:
    """Reads of runs and recurring jobs, by any index or none, from the server's counters."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    (row,) = await connection.fetch(
        """SELECT sum(seq_tup_read + idx_tup_fetch)::bigint AS rows FROM pg_stat_user_tables
           WHERE relname IN ('runs', 'jobs_recurring')"""
    )
    rows: int = row["rows"]
    return rows


@pytest.mark.parametrize("step", ["recall", "repair", "plan", "edit", "pause"])
async def test_one_job_among_many_costs_the_same_as_alone(as_service: Conn, step: str) -> None:
    """B11: reads inside functions come from the server's counters."""
    document = {"task": "a", "schedule": {"cron": "0 * * * *"}}
    (written,) = await recurring_jobs.submit(as_service, TESTER, [document], now=NOW)
    await as_service.execute(SCHEDULES, NOW)
    await as_service.execute(
        RUNS.replace("FROM sexton.jobs_recurring j", "FROM sexton.jobs_recurring j WHERE j.name IS NOT NULL"), after(hours=1)
    )
    await as_service.execute("ANALYZE sexton.runs")
    now: datetime = NOW + timedelta(minutes=1)
    before = await _rows_read(as_service)
    match step:
        case "recall":
            assert (await schedules.recall(as_service, partitions=ALL, limit=1000, now=now)).recalled_count == 0
        case "repair":
            assert (await schedules.repair(as_service, now=now)).forgotten == []
        case "plan":
            seen = await schedules.to_plan_now(as_service, [written.id], now=now)
            assert len(seen) == 1
        case "edit":
            await recurring_jobs.edit(as_service, TESTER, AtVersion(written.id), {**document, "payload": {"n": 2}}, now=now)
        case _:
            await recurring_jobs.pause(as_service, TESTER, written.id, now=now)
    assert await _rows_read(as_service) - before < 60
