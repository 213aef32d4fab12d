-- name: attend
-- A remote worker joins, or sends a heartbeat with its current values. `is_ours`: the id belongs to a worker that is not remote.
-- $1 now, $2 worker, $3 name, $4 queues, $5 tasks, $6 concurrency, $7 its lease (s)
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), present AS (
  INSERT INTO sexton.workers AS w (id, name, queues, tasks, concurrency, started_at, beat_at, lease_s)
  SELECT $2, $3, $4, $5, $6, m.now, m.now, $7 FROM moment m
  ON CONFLICT (id) DO UPDATE SET beat = w.beat + 1, beat_at = excluded.beat_at, name = excluded.name, queues = excluded.queues,
    tasks = excluded.tasks, concurrency = excluded.concurrency, lease_s = excluded.lease_s, draining = false,
    running_count = (SELECT count(*) FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')
  WHERE w.lost_at IS NULL AND w.lease_s IS NOT NULL
  RETURNING w.beat
)
SELECT EXISTS (SELECT FROM present) AS is_present, EXISTS (SELECT FROM present p WHERE p.beat = 0) AS is_new,
  EXISTS (SELECT FROM sexton.workers w WHERE w.id = $2 AND w.lease_s IS NULL) AS is_ours,
  (SELECT sexton.count_suspects($4, $5, 1, m.now) FROM moment m) > 0 AS suspects_wait

-- name: beat
-- No row: it was declared dead, has left, or is not a remote worker. $1 now, $2 worker, $3 draining
UPDATE sexton.workers w SET beat = w.beat + 1, beat_at = coalesce($1::timestamptz, clock_timestamp()), draining = $3,
  running_count = (SELECT count(*) FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')
WHERE w.id = $2 AND w.lost_at IS NULL AND w.lease_s IS NOT NULL
RETURNING w.lease_s

-- name: held
-- $1 now, $2 worker
SELECT r.id, r.job_id, r.token, r.cancel_requested_at IS NOT NULL AS cancel_requested, r.at_most_once,
  extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - r.claimed_at)::float8 AS held_s
FROM sexton.runs r WHERE r.worker_id = $2 AND r.state = 'running'

-- name: with_work
-- Those of these queues that have ready runs or suspects. One or two index probes for each.
SELECT q.name FROM unnest($1::text[]) AS q (name)
WHERE EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = q.name)
  OR EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'quarantined' AND r.queue = q.name)

-- name: leave
DELETE FROM sexton.workers w WHERE w.id = $1 AND w.lease_s IS NOT NULL
  AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')
