-- name: get
SELECT s.name, s.kinds, s.tenant, s.queue, s.job_id, s.delivery, s.paused_at, s.created_at, s.updated_at
FROM sexton.subscriptions s WHERE s.name = $1

-- name: list
-- By name. $1 after this one, $2 at most
SELECT s.name, s.kinds, s.tenant, s.queue, s.job_id, s.delivery, s.paused_at, s.created_at, s.updated_at
FROM sexton.subscriptions s WHERE s.name > $1::text ORDER BY s.name LIMIT $2

-- name: put
-- $1 now, $2 name, $3 kinds, $4 tenant, $5 queue, $6 job, $7 delivery, $8 whether it is paused
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
INSERT INTO sexton.subscriptions AS s (name, kinds, tenant, queue, job_id, delivery, paused_at, created_at, updated_at)
SELECT $2::text, $3::text[], $4::text, $5::text, $6::uuid, $7::jsonb, CASE WHEN $8::boolean THEN m.now END, m.now, m.now FROM moment m
ON CONFLICT (name) DO UPDATE SET kinds = excluded.kinds, tenant = excluded.tenant, queue = excluded.queue, job_id = excluded.job_id,
  delivery = excluded.delivery, paused_at = CASE WHEN $8 THEN coalesce(s.paused_at, excluded.paused_at) END, updated_at = excluded.updated_at
RETURNING s.xmax = 0 AS is_new

-- name: pause
UPDATE sexton.subscriptions s SET paused_at = coalesce(s.paused_at, coalesce($1::timestamptz, clock_timestamp())) WHERE s.name = $2 RETURNING s.name

-- name: remove
DELETE FROM sexton.subscriptions s WHERE s.name = $1 RETURNING s.name

-- name: undelivered
-- Checks $3 deliveries, newest first. Returns the last of them and those that have not ended. None is older than the oldest job
-- that has not ended. $1 the name of their jobs, $2 below this id, $3 at most
WITH looked AS MATERIALIZED (
  SELECT j.id, j.policy ? 'delivers' AS delivers FROM sexton.jobs j
  WHERE (j.name, j.id) < ($1::text, $2::uuid) AND j.name IS NOT NULL AND j.id < $2
    AND (j.name, j.id) >= ($1, (SELECT r.job_id FROM sexton.runs r ORDER BY r.job_id, r.fire_at, r.origin, r.seq LIMIT 1))
  ORDER BY j.name DESC, j.id DESC LIMIT $3
)
SELECT l.id, l.delivers AND EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = l.id OFFSET 0) AS is_live FROM looked l ORDER BY l.id DESC

-- name: leases
-- Locks the live runs of these jobs, in id order. $1 jobs
WITH found AS MATERIALIZED (
  SELECT r.id FROM unnest($1::uuid[]) AS wanted (job_id) CROSS JOIN LATERAL (
    SELECT runs.id FROM sexton.runs WHERE runs.job_id = wanted.job_id ORDER BY runs.job_id, runs.fire_at, runs.origin, runs.seq LIMIT 1) r
)
SELECT r.id, r.job_id, r.worker_id, r.token, r.attempt, r.lost_count, r.at_most_once, r.seq, r.origin, NULL::float8 AS deadline_left_s,
  NULL::jsonb AS policy
FROM sexton.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM found)) ORDER BY r.id FOR UPDATE

-- name: retarget
-- Deliveries that are sent again use the current URL and retry policy of their subscription. Their content stays the same, so
-- the job keeps its version. Locks them, and returns those that belong to the subscription. $1 jobs, $2 subscription
WITH locked AS MATERIALIZED (
  SELECT j.id, (s.delivery->'policy') || jsonb_build_object('delivers', j.policy->'delivers') AS policy, j.policy AS was
  FROM sexton.jobs j JOIN sexton.subscriptions s ON s.name = $2::text
  WHERE j.id = ANY ($1::uuid[]) AND j.policy->'delivers'->>'subscription' = $2
  ORDER BY j.id FOR NO KEY UPDATE OF j
), changed AS (
  UPDATE sexton.jobs j SET policy = l.policy FROM locked l
  WHERE j.id = ANY (ARRAY(SELECT locked.id FROM locked WHERE locked.policy <> locked.was)) AND j.id = l.id
)
SELECT l.id FROM locked l

-- name: letters
-- The dead letters of these jobs.
SELECT d.id FROM sexton.dead_letters d WHERE d.job_id = ANY ($1::uuid[]) ORDER BY d.job_id

-- name: reopen
-- Sends ended deliveries without a dead letter again, with a fresh budget. The job and its fire time stay the same, and so does
-- the id of the message. $1 now, $2 jobs
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), locked AS MATERIALIZED (
  SELECT e.job_id FROM sexton.endings e
  WHERE e.job_id = ANY ($2::uuid[]) AND NOT EXISTS (SELECT FROM sexton.dead_letters d WHERE d.job_id = e.job_id OFFSET 0)
  ORDER BY e.job_id FOR UPDATE SKIP LOCKED
), reopened AS (
  DELETE FROM sexton.endings e WHERE e.job_id = ANY (ARRAY(SELECT job_id FROM locked)) RETURNING e.job_id, e.execution_id
)
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, timeout_s, lane, partition, at_most_once, state, origin, seq, queue, tenant, task, job_version)
SELECT sexton.uuid7((extract(epoch FROM m.now) * 1000000)::bigint + row_number() OVER (ORDER BY o.job_id)), j.id,
  coalesce(x.fire_at, j.submitted_at), m.now, j.timeout_s, j.lane, sexton.partition_of(j.id), j.at_most_once, 'ready', 'replay',
  CASE WHEN x.origin = 'replay' THEN x.seq + 1 ELSE 1 END, j.queue, j.tenant, j.task, j.version
FROM moment m, reopened o CROSS JOIN LATERAL (SELECT * FROM sexton.jobs WHERE jobs.id = o.job_id LIMIT 1) j
LEFT JOIN LATERAL (SELECT * FROM sexton.executions WHERE executions.id = o.execution_id LIMIT 1) x ON true
RETURNING job_id, queue

-- name: submit_held
SELECT submitted, refused FROM sexton.submit_held($2::int, $1::timestamptz)
