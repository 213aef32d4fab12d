"""Writes a history into an empty database, straight into the tables: jobs of four weeks in every state, with their
executions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

DAYS = 28
BATCH = 100_000

# One job in 25 is live. Of the ended jobs, one in 40 failed and one in 100 was cancelled. Tenants, queues and tasks are skewed:
# most jobs share one, a few are rare. One job in 10 has a name, one in 20 has tags.
_FILL = """
WITH n AS MATERIALIZED (
  SELECT g AS n, sexton.uuid7($3::bigint + (g - $1) * $4::bigint) AS id, to_timestamp(($3 + (g - $1) * $4) / 1000000.0) AS at,
    sexton.uuid7($3 + (g - $1) * $4 + 1000000) AS execution_id,
    CASE WHEN g % 25 = 0 THEN NULL WHEN g % 40 = 1 THEN 'failed' WHEN g % 100 = 2 THEN 'cancelled' ELSE 'completed' END
      AS ending,
    CASE WHEN g % 10 < 9 THEN 'default' WHEN g % 1000 <> 9 THEN 'tenant-' || g / 10 % 100 ELSE 'rare' END AS tenant,
    CASE WHEN g % 7 < 5 THEN 'default' ELSE 'queue-' || g % 7 END AS queue,
    CASE WHEN g % 13 < 8 THEN 'send' WHEN g % 1300 <> 12 THEN 'task-' || g % 13 ELSE 'seldom' END AS task,
    CASE WHEN g % 10 = 3 THEN 'name-' || g / 10 % 1000 END AS name,
    CASE WHEN g % 20 = 4 THEN ARRAY['billing', 'tag-' || g / 20 % 50] END AS tags
  FROM generate_series($1::bigint, $2::bigint) g
), defined AS (
  INSERT INTO sexton.jobs (id, task, tenant, queue, lane, name, payload, timeout_s, at_most_once, tags, submitted_at,
                           submitted_by)
  SELECT id, task, tenant, queue, 2, name, jsonb_build_object('n', n, 'text', 'some words'), 30, false, tags, at, 'bench' FROM n
), tagged AS (
  INSERT INTO sexton.job_tags (tag, job_id) SELECT unnest(tags), id FROM n
), live AS (
  INSERT INTO sexton.runs (id, job_id, fire_at, due_at, lane, partition, at_most_once, state, origin, queue, tenant, task,
                           token, attempt, worker_id, claimed_at)
  SELECT id, id, at, $5::timestamptz + (n % 100000) * interval '1 second', 2, sexton.partition_of(id), false, s.state, 'now',
    queue, tenant, task,
    (s.state = 'running')::int, (s.state = 'running')::int,
    CASE WHEN s.state = 'running' THEN gen_random_uuid() END, CASE WHEN s.state = 'running' THEN at END
  FROM n, LATERAL (SELECT CASE WHEN n % $6::bigint = 0 THEN 'running' WHEN n % $6 = 25 THEN 'paused'
                               WHEN n % 50 = 0 THEN 'ready' ELSE 'waiting' END AS state) s
  WHERE ending IS NULL
), history AS (
  INSERT INTO sexton.executions (id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version, seq,
                                 attempt, lane, origin, status, queue, tenant, task, result)
  SELECT execution_id, id, id, gen_random_uuid(), at, at, at, at + interval '1 second', 1, 1, 0, 1, 2, 'now',
    CASE ending WHEN 'completed' THEN 'succeeded' ELSE ending END, queue, tenant, task, '{"done": true}'
  FROM n WHERE ending IS NOT NULL
)
INSERT INTO sexton.endings (job_id, execution_id, ended_at, status)
SELECT id, execution_id, at + interval '1 second', ending FROM n WHERE ending IS NOT NULL
"""


async def fill(connection: Any, jobs: int, now: datetime, say: Callable[[str], None]) -> None:
    """Writes `jobs` jobs, evenly over the last `DAYS` days; about 100 run and 100 are paused."""
    first = now - timedelta(days=DAYS)
    await connection.execute("SELECT sexton.make_partitions($1, $2)", first, now)
    await connection.execute("SET synchronous_commit = off")
    gap = DAYS * 86_400 * 1_000_000 // jobs
    start = int(first.timestamp()) * 1_000_000
    every = max(jobs // 100 // 50 * 50, 50)
    for low in range(1, jobs + 1, BATCH):
        say(f"writing jobs {low:,} of {jobs:,}")
        high = min(low + BATCH - 1, jobs)
        await connection.execute(_FILL, low, high, start + (low - 1) * gap, gap, now, every, timeout=600)
    say("vacuuming")
    await connection.execute("VACUUM (ANALYZE)", timeout=3600)
    await connection.execute("CHECKPOINT", timeout=600)
