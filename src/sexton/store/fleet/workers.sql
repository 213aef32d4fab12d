-- name: enlist
INSERT INTO sexton.workers (id, name, queues, tasks, concurrency, started_at, beat_at)
SELECT $2, $3, $4, $5, $6, m.now, m.now FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m
ON CONFLICT (id) DO NOTHING -- the reply to the first try was lost

-- name: register_tasks
INSERT INTO sexton.tasks AS t (name, options, seen_at)
SELECT x.name, x.options, coalesce($1::timestamptz, clock_timestamp())
FROM jsonb_to_recordset($2::jsonb) AS x (name text, options jsonb) ORDER BY x.name
ON CONFLICT (name) DO UPDATE SET options = excluded.options, seen_at = excluded.seen_at
WHERE t.options <> excluded.options OR t.seen_at < excluded.seen_at - interval '1 hour'

-- name: beat
-- One row per worker, not per run; the result is the list of runs leased to it, of these ($8) or of all (null). No row at all: it was
-- declared dead.
-- It also checks whether there is work: ready runs in the worker's queues ($6), and runs that no scheduler promoted, planned or
-- admitted for $7 seconds (rule "overdue work is anyone's"). So an idle worker needs no other query. $7 null: the worker is busy,
-- and no check is made.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), alive AS (
  UPDATE sexton.workers w SET beat = w.beat + 1, beat_at = (SELECT now FROM moment), running_count = $3,
    draining = $4, refused_count = $5
  WHERE w.id = $2 AND w.lost_at IS NULL
  RETURNING w.id
)
SELECT r.id, r.job_id, r.token, r.cancel_requested_at IS NOT NULL AS cancel_requested, r.at_most_once,
  $7::float8 IS NOT NULL AND EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'ready' AND o.queue = ANY ($6::text[])) AS is_ready,
  $7 IS NOT NULL AND (
    EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'waiting' AND o.due_at <= (SELECT now - make_interval(secs => $7) FROM moment))
    OR EXISTS (SELECT FROM sexton.jobs_recurring j WHERE j.plan_at <= (SELECT now - make_interval(secs => $7) FROM moment))
    OR EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'blocked')
    OR EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'parked')) AS is_overdue
FROM alive LEFT JOIN LATERAL (
  SELECT h.id, h.job_id, h.token, h.cancel_requested_at, h.at_most_once FROM sexton.runs h
  WHERE $8::uuid[] IS NULL AND h.worker_id = alive.id AND h.state = 'running'
  UNION ALL
  SELECT h.id, h.job_id, h.token, h.cancel_requested_at, h.at_most_once FROM sexton.runs h
  WHERE h.id = ANY ($8::uuid[]) AND h.worker_id = alive.id AND h.state = 'running'
) r ON true

-- name: leased
-- All runs leased to a worker, as in `beat`, without the heartbeat.
SELECT r.id, r.job_id, r.token, r.cancel_requested_at IS NOT NULL AS cancel_requested, r.at_most_once
FROM sexton.runs r WHERE r.worker_id = $1 AND r.state = 'running'

-- name: leave
DELETE FROM sexton.workers w WHERE w.id = $1 AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')

-- name: survey
-- One query for everything a sweeper or a planner might have to do; nearly always there is nothing. $1 now, $2 the cluster's lease
-- (s), $3 whether to scan all running runs as well
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
SELECT
  ARRAY(SELECT id FROM sexton.workers WHERE lost_at IS NULL ORDER BY id) AS worker_ids,
  ARRAY(SELECT beat FROM sexton.workers WHERE lost_at IS NULL ORDER BY id) AS beats,
  ARRAY(SELECT lease_s FROM sexton.workers WHERE lost_at IS NULL ORDER BY id) AS leases_s,
  EXISTS (SELECT FROM sexton.workers w WHERE w.lost_at IS NULL AND w.running_count > 0)
  OR ($3::boolean AND EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'running')) AS running,
  $3 AND EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'running' AND r.worker_id <> sexton.callbacks() AND NOT EXISTS (
    SELECT FROM sexton.workers w WHERE w.id = r.worker_id
      AND (w.lost_at IS NULL OR w.lost_at + make_interval(secs => r.lease_s - coalesce(w.lease_s, $2::float8)) > (SELECT now FROM moment)))) AS abandoned,
  $3 AND EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'running' AND r.must_end_at <= (SELECT now FROM moment)) AS overrunning,
  EXISTS (SELECT FROM sexton.runs r
          WHERE r.state <> 'running' AND (r.start_by IS NOT NULL OR r.deadline_at IS NOT NULL)
            AND least(r.start_by, r.deadline_at) <= (SELECT now FROM moment)) AS expired,
  EXISTS (SELECT FROM sexton.jobs_recurring j WHERE j.plan_at <= (SELECT now FROM moment))
  OR EXISTS (SELECT FROM sexton.runs r
             WHERE r.state = 'waiting' AND r.overlap > 0 AND r.token = 0 AND r.origin = 'schedule'
               AND r.due_at <= (SELECT now - sexton.patience() FROM moment)) AS to_plan

-- name: declare_lost
-- Compare-and-set: a worker that has sent a heartbeat since then is alive.
UPDATE sexton.workers w SET lost_at = coalesce($1::timestamptz, clock_timestamp())
FROM jsonb_to_recordset($2::jsonb) AS x (id uuid, beat bigint)
WHERE w.id = x.id AND w.beat = x.beat AND w.lost_at IS NULL
RETURNING w.id

-- name: workers
SELECT id, name, queues, tasks, concurrency, started_at, beat_at, lost_at, draining, running_count, refused_count
FROM sexton.workers ORDER BY started_at, id

-- name: forget_workers
DELETE FROM sexton.workers w
WHERE w.lost_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 hour'
  AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')

-- name: node_beat
-- Reports that this scheduler is alive and what it leads. Returns all live ones: those with a recent heartbeat whose session, if they
-- have one, still exists. If another process got the same pid, the node only seems alive until its heartbeat is old.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), mine AS (
  INSERT INTO sexton.nodes AS n (id, name, started_at, beat_at, partitions, session)
  SELECT $2, $3, m.now, m.now, $4::smallint[], $6 FROM moment m
  ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at, partitions = excluded.partitions, session = excluded.session
  RETURNING n.id
)
SELECT id FROM mine
UNION
SELECT n.id FROM sexton.nodes n, moment m
WHERE n.beat_at > m.now - make_interval(secs => $5::float8)
  AND (n.session IS NULL OR EXISTS (SELECT FROM pg_stat_get_activity(n.session)))

-- name: node_leave
DELETE FROM sexton.nodes WHERE id = $1

-- name: nodes
SELECT id, name, started_at, beat_at, partitions FROM sexton.nodes ORDER BY started_at, id

-- name: forget_nodes
DELETE FROM sexton.nodes WHERE beat_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 hour'
