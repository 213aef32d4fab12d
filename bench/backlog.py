"""Writes millions of jobs straight into the tables, each with a run that is due next year and an execution in the history. The
hot path must not become slower by them. It writes as many as the disk can hold."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timedelta

import asyncpg

from .server import OURS, Server

BATCH = 50_000
WRITERS = 2
BYTES_EACH = 1_500  # a job, its run and its execution with their indexes: 1,240 when measured
FREE_SHARE = 0.6  # at most this share of the free disk
# the time over which the executions are spread; a system that ends millions of jobs a day has this many recent ones
PAST = timedelta(days=2)

# The first try failed and the next one is due in a year, so one job has both a waiting run and an execution.
_FILL = """
WITH n AS MATERIALIZED (
  SELECT g AS n, sexton.uuid7($3::bigint + (g - $1) * $4::bigint) AS id,
    to_timestamp(($3 + (g - $1) * $4) / 1000000.0) AS at, sexton.uuid7($3 + (g - $1) * $4 + 1000) AS execution_id
  FROM generate_series($1::bigint, $2::bigint) g
), defined AS (
  INSERT INTO sexton.jobs (id, task, tenant, queue, lane, payload, timeout_s, at_most_once, submitted_at, submitted_by)
  SELECT id, 'note', 'default', 'default', 2, jsonb_build_object('number', n, 'pad', repeat('x', 180)), 30, false, at, 'bench'
  FROM n
), waiting AS (
  INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, timeout_s, state, origin, queue, tenant,
                           task, token, attempt)
  SELECT id, id, at, $5::timestamptz + interval '1 year' + n * interval '1 millisecond', 2, sexton.partition_of(id), false, 30,
    'waiting', 'now', 'default', 'default', 'note', 1, 1
  FROM n
)
INSERT INTO sexton.executions (id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version, seq,
                               attempt, lane, origin, status, queue, tenant, task, error)
SELECT execution_id, id, id, gen_random_uuid(), at, at, at, at + interval '1 millisecond', 1, 1, 0, 1, 2, 'now', 'failed',
  'default', 'default', 'note', '{"type": "ValueError", "message": "not yet"}'
FROM n
"""


async def affordable(server: Server, wanted: int) -> int:
    """How many the disk under the server can hold. Prints a warning if that is fewer than wanted."""
    if not server.is_local:
        return wanted
    free = shutil.disk_usage(await server.monitor.fetchval("SELECT current_setting('data_directory')")).free
    possible = max(BATCH, int(free * FREE_SHARE / BYTES_EACH) // BATCH * BATCH)
    if possible < wanted:
        print(
            f"bench: {free / 2**30:.0f} GiB of free disk can hold {possible:,} waiting runs and executions, not {wanted:,}: "
            "the figures are for the smaller number",
            file=sys.stderr,
        )
    return min(wanted, possible)


async def fill(server: Server, numbers: range, total: int, say: Callable[[str], None]) -> None:
    """Writes the jobs with these numbers, of `total` that are spread evenly over the time before now."""
    now: datetime = await server.monitor.fetchval("SELECT date_trunc('day', clock_timestamp())")
    first = now - PAST
    await server.monitor.execute("SELECT sexton.make_partitions($1, $2)", first, now)
    gap = int(PAST.total_seconds() * 1_000_000) // total
    start = int(first.timestamp()) * 1_000_000
    lows = iter(range(numbers.start, numbers.stop, BATCH))

    async def write() -> None:
        connection = await asyncpg.connect(server.url, server_settings={"application_name": OURS})
        try:
            await connection.execute("SET synchronous_commit = off")
            for low in lows:
                say(f"writing waiting runs and executions: {low:,} of {numbers.stop:,}")
                high = min(low + BATCH, numbers.stop) - 1
                await connection.execute(_FILL, low, high, start + low * gap, gap, now, timeout=600)
        finally:
            await connection.close()

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    say("vacuuming")
    await server.monitor.execute("VACUUM (ANALYZE)", timeout=3600)
    await server.monitor.execute("CHECKPOINT", timeout=600)


async def empty(server: Server) -> None:
    await server.monitor.execute("TRUNCATE sexton.runs, sexton.jobs, sexton.executions, sexton.endings", timeout=600)
    await server.monitor.execute("VACUUM (ANALYZE)", timeout=600)
    await server.monitor.execute("CHECKPOINT", timeout=600)
