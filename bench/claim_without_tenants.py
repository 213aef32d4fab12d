"""The claim as it was before fair claims between tenants: by lane and due time. The cost of fairness is measured against it. A
worker of the benchmark uses it if the environment says so, on a database with the index and the `finish_runs` of that time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import sexton.store
from sexton.store.work import runs

VARIABLE = "BENCH_PLAIN_CLAIM"

# With the arguments of the current claim: $7, claimed ahead of a free slot; $8, turns, which this claim ignores.
CLAIM = """
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, $8::jsonb AS turns
), picked AS MATERIALIZED (
  SELECT ready.id FROM unnest($3::text[]) AS wanted(queue) CROSS JOIN LATERAL (
    SELECT r.id, r.lane, r.due_at FROM sexton.runs r
    WHERE r.state = 'ready' AND r.queue = wanted.queue AND r.task = ANY ($4::text[]) AND NOT ($7::boolean AND r.at_most_once)
      AND (r.start_by IS NULL OR r.start_by >= (SELECT now FROM moment))
      AND (r.deadline_at IS NULL OR r.deadline_at > (SELECT now FROM moment))
      AND EXISTS (SELECT FROM sexton.workers w WHERE w.id = $2 AND w.lost_at IS NULL)
    ORDER BY r.lane, r.due_at, r.id
    LIMIT $5
    FOR UPDATE OF r SKIP LOCKED
  ) ready
  ORDER BY ready.lane, ready.due_at, ready.id LIMIT $5
), claimed AS (
  UPDATE sexton.runs r SET
    state = 'running', worker_id = $2, token = r.token + 1, attempt = r.attempt + 1, claimed_at = moment.now,
    must_end_at = moment.now
      + make_interval(secs => least(r.timeout_s, extract(epoch FROM r.deadline_at - moment.now)) + $6::float8)
  FROM moment
  WHERE r.id = ANY (ARRAY(SELECT id FROM picked))
  RETURNING r.*, extract(epoch FROM r.deadline_at - moment.now)::float8 AS deadline_left_s
)
SELECT c.id, c.job_id, c.worker_id, c.token, c.attempt, c.lost_count, c.at_most_once, c.seq, c.origin, c.deadline_left_s,
  j.policy, c.job_version, c.fire_at, c.due_at, c.claimed_at, c.timeout_s::float8, c.queue, c.tenant, c.lane, c.task,
  j.name, j.payload, j.idempotency_key, k.execution_id AS completed_by, j.trace
FROM claimed c
LEFT JOIN LATERAL (SELECT * FROM sexton.jobs WHERE jobs.id = c.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (
  SELECT execution_id FROM sexton.idempotency_keys  -- one that expired may by now belong to another job
  WHERE j.idempotency_key IS NOT NULL AND tenant = c.tenant AND key = j.idempotency_key AND job_id = c.job_id
    AND completed_at IS NOT NULL LIMIT 1
) k ON true
ORDER BY c.lane, c.due_at, c.id
"""

_FINISH = re.compile(r"^CREATE OR REPLACE FUNCTION sexton\.finish_runs\(.*?^\$\$;$", re.MULTILINE | re.DOTALL)
_INDEX = re.compile(r"^CREATE INDEX runs_ready ON .*?;$", re.MULTILINE)


def install() -> None:
    """Called in a worker of the benchmark before it starts."""
    runs._CLAIM = CLAIM


async def switch(connection: Any, *, is_plain: bool) -> None:
    """Installs the old database objects, or the current ones. No run may be ready."""
    plain = (Path(__file__).parent / "plain.sql").read_text()
    store = Path(sexton.store.__file__).parent
    today = [store / "functions" / "finish_runs.sql", store / "migrations" / "0000_baseline" / "20_runs.sql"]
    finish, table = (plain, plain) if is_plain else (path.read_text() for path in today)
    await connection.execute(_FINISH.search(finish)[0])  # type: ignore[index]
    await connection.execute(f"DROP INDEX sexton.runs_ready; {_INDEX.search(table)[0]}")  # type: ignore[index]
