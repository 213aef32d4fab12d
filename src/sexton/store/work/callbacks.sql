-- name: key
SELECT key FROM sexton.lease_key

-- name: hand_over
-- Runs leave their worker with their current token: the holder of the token ends them. A run that is not in the answer had
-- already ended, was taken away, or is locked by another transaction (rule "a waiting caller leaves the group"). $1 now, $2 worker, $3 runs, $4 their tokens
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), leaving AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r JOIN unnest($3::uuid[], $4::bigint[]) AS x (run_id, token) ON r.id = x.run_id AND r.token = x.token
  WHERE r.id = ANY ($3) AND r.worker_id = $2 ORDER BY r.id FOR UPDATE OF r SKIP LOCKED
)
UPDATE sexton.runs r SET worker_id = sexton.callbacks(), must_end_at =
  sexton.callback_ends_at(r.claimed_at, r.timeout_s, r.deadline_at, r.cancel_requested_at, r.job_id, r.job_version, (SELECT now FROM moment))
WHERE r.id = ANY (ARRAY(SELECT id FROM leaving))
RETURNING r.id

-- name: still_held
-- Of these runs, those that the worker still holds. $1 worker, $2 runs, $3 their tokens
SELECT r.id FROM sexton.runs r JOIN unnest($2::uuid[], $3::bigint[]) AS x (run_id, token) ON r.id = x.run_id AND r.token = x.token
WHERE r.id = ANY ($2) AND r.worker_id = $1

-- name: hear
-- Here and below the condition does not name the state: with it, a plan made on an empty table would scan all running runs.
-- Every running run has a worker. A heartbeat of one run, with its progress and output. It also counts as a heartbeat of its
-- remote worker, if it has one. No row: the lease is lost. $1 now, $2 run, $3 token, $4 progress, $5 output to be added, of
-- which the newest 16,000 characters are kept
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), held AS MATERIALIZED (
  SELECT r.id, r.token, r.worker_id, r.must_end_at, r.cancel_requested_at IS NOT NULL AS cancel_requested,
    CASE WHEN r.worker_id = sexton.callbacks() THEN sexton.callback_ends_at(
      r.claimed_at, r.timeout_s, r.deadline_at, r.cancel_requested_at, r.job_id, r.job_version, (SELECT now FROM moment)) ELSE r.must_end_at END AS ends_at
  FROM sexton.runs r WHERE r.id = $2 AND r.token = $3 AND r.worker_id IS NOT NULL FOR UPDATE OF r
), moved AS (
  UPDATE sexton.runs r SET must_end_at = h.ends_at FROM held h
  WHERE r.id = $2 AND r.id = h.id AND h.ends_at IS DISTINCT FROM h.must_end_at
), told AS (
  INSERT INTO sexton.live_output AS o (run_id, token, updated_at, progress, output)
  SELECT h.id, h.token, (SELECT now FROM moment), $4::jsonb, right($5::text, 16000) FROM held h WHERE $4 IS NOT NULL OR $5 IS NOT NULL
  ON CONFLICT (run_id) DO UPDATE SET token = excluded.token, updated_at = excluded.updated_at,
    progress = coalesce(excluded.progress, CASE WHEN o.token = excluded.token THEN o.progress END),
    output = right(concat_ws(E'\n', CASE WHEN o.token = excluded.token THEN o.output END, excluded.output), 16000)
), beaten AS (
  UPDATE sexton.workers w SET beat = w.beat + 1, beat_at = (SELECT now FROM moment)
  WHERE w.id = (SELECT worker_id FROM held) AND w.lease_s IS NOT NULL AND w.lost_at IS NULL
)
SELECT cancel_requested, ends_at FROM held

-- name: leases
-- The data that a report needs about the runs it ends, if they still have these tokens, for every holder. It counts as a
-- heartbeat of the remote workers among the holders. $1 now, $2 runs, $3 their tokens
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), held AS MATERIALIZED (
  SELECT r.* FROM unnest($2::uuid[], $3::bigint[]) AS x (run_id, token)
  JOIN sexton.runs r ON r.id = x.run_id AND r.token = x.token AND r.worker_id IS NOT NULL
  WHERE r.id = ANY ($2)  -- by the primary key, never a scan of all running runs
), beating AS MATERIALIZED (
  SELECT w.id FROM sexton.workers w
  WHERE w.id = ANY (ARRAY(SELECT worker_id FROM held)) AND w.lease_s IS NOT NULL AND w.lost_at IS NULL ORDER BY w.id FOR UPDATE SKIP LOCKED
), beaten AS (
  UPDATE sexton.workers w SET beat = w.beat + 1, beat_at = (SELECT now FROM moment) WHERE w.id = ANY (ARRAY(SELECT id FROM beating))
)
SELECT h.id, h.job_id, h.worker_id, h.token, h.attempt, h.lost_count, h.at_most_once, h.seq, h.origin,
  extract(epoch FROM h.deadline_at - h.claimed_at)::float8 AS deadline_left_s,
  CASE WHEN v.version IS NULL THEN j.policy ELSE v.policy END AS policy, o.progress, o.output,
  extract(epoch FROM (SELECT now FROM moment) - h.claimed_at)::float8 AS held_s,
  extract(epoch FROM h.claimed_at - h.due_at)::float8 AS lag_s, h.task, j.idempotency_key, h.cancel_requested_at IS NOT NULL AS cancel_requested
FROM held h
LEFT JOIN LATERAL (SELECT policy, idempotency_key FROM sexton.jobs WHERE jobs.id = h.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (
  SELECT job_versions.version, policy FROM sexton.job_versions
  WHERE job_versions.job_id = h.job_id AND job_versions.version = h.job_version LIMIT 1) v ON true
LEFT JOIN sexton.live_output o ON o.run_id = h.id AND o.token = h.token

-- name: recorded
-- How the attempt under this token ended, and the current state of its run: the first report may have been recorded although
-- its answer was lost. $1 run, $2 job, $3 token, $4 an id from before the run
SELECT e.id, e.status, (SELECT r.state FROM sexton.runs r WHERE r.id = $1) AS state
FROM sexton.executions e WHERE e.job_id = $2 AND e.id >= $4 AND e.run_id = $1 AND e.token = $3 LIMIT 1
