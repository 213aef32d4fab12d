-- name: lock_job
SELECT j.version, j.queue, j.lane, j.name, j.payload, j.policy, j.timeout_s::float8, j.tags, j.at_most_once, t.options
FROM sexton.jobs j LEFT JOIN sexton.tasks t ON t.name = j.task
WHERE j.id = $1 FOR UPDATE OF j

-- name: lock_run
-- The live run of a one-time job. The order is that of its index; without it, a plan made on an empty table would scan all
-- runs.
WITH found AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r WHERE r.job_id = $1 ORDER BY r.fire_at, r.origin, r.seq
)
SELECT r.id, r.state, r.token FROM sexton.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM found)) ORDER BY r.id FOR UPDATE

-- name: edit
-- The run follows its job. $1 now, $2 job, $3 run, $4 queue, $5 lane, $6 name, $7 payload, $8 policy, $9 timeout (s), $10 tags,
-- $11 at most once, $12 tags to delete, $13 tags to add, $14 whether its time changes, $15 to this instant, or $16 by this many
-- seconds from now, $17 by which caller. The run leaves the line of its limit: a slot that it holds is free for the next run.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), kept AS (
  INSERT INTO sexton.job_versions (job_id, version, queue, lane, name, payload, policy, timeout_s, tags, fire_at, replaced_at, replaced_by)
  SELECT j.id, j.version, j.queue, j.lane, j.name, j.payload, j.policy, j.timeout_s, j.tags, r.fire_at, moment.now, $17::text
  FROM moment, (SELECT * FROM sexton.jobs WHERE jobs.id = $2::uuid LIMIT 1) j, (SELECT fire_at FROM sexton.runs WHERE runs.id = $3::uuid LIMIT 1) r
), changed AS (
  UPDATE sexton.jobs j SET version = j.version + 1, queue = $4::text, lane = $5::smallint, name = $6::text, payload = $7::jsonb,
    policy = $8::jsonb, timeout_s = $9::real, tags = $10::text[], at_most_once = $11::boolean
  WHERE j.id = $2
), untagged AS (
  DELETE FROM sexton.job_tags t WHERE t.tag = ANY ($12::text[]) AND t.job_id = $2
), tagged AS (
  INSERT INTO sexton.job_tags (tag, job_id) SELECT tag, $2 FROM unnest($13::text[]) AS tag
), timed AS MATERIALIZED (
  SELECT moment.now, f.fire_at, greatest(f.fire_at, f.due_at) AS due_at FROM moment, LATERAL (
    SELECT moment.now AS due_at, coalesce($15::timestamptz, moment.now + make_interval(secs => $16::float8), moment.now) AS fire_at
    WHERE $14::boolean
    UNION ALL
    (SELECT r.due_at, r.fire_at FROM sexton.runs r WHERE r.id = $3 AND NOT $14 LIMIT 1)
  ) f
), held AS MATERIALIZED (  -- for a ready run, a trigger does it
  SELECT r.limit_key, r.slot FROM sexton.runs r WHERE r.id = $3 AND r.state IN ('waiting', 'parked') AND r.slot IS NOT NULL
), freed AS (
  UPDATE sexton.slots s SET run_id = NULL FROM held h WHERE s.key = h.limit_key AND s.n = h.slot AND s.run_id = $3
)
UPDATE sexton.runs r SET
  queue = $4, lane = $5, timeout_s = $9, lease_s = ($8->>'lease_s')::real, at_most_once = $11, job_version = r.job_version + 1, fire_at = timed.fire_at, due_at = timed.due_at,
  start_by = CASE WHEN r.origin <> 'replay' THEN timed.due_at + make_interval(secs => ($8->>'start_within_s')::float8) END,
  deadline_at = timed.due_at + make_interval(secs => ($8->>'deadline_s')::float8),
  limit_key = sexton.limit_key_of($8, $7), slot = NULL,
  state = CASE WHEN r.state = 'paused' THEN r.state WHEN timed.due_at > timed.now THEN 'waiting'
    WHEN sexton.limit_key_of($8, $7) IS NULL THEN 'ready' ELSE 'parked' END
FROM timed WHERE r.id = $3
RETURNING r.queue, r.state = 'ready' AS is_ready,
  r.state = 'parked' OR EXISTS (SELECT FROM held) OR r.state = 'waiting' AND r.due_at < timed.now + interval '3 seconds' AS due_soon

-- name: make_limit
-- $1 now, $2 policy, $3 payload
SELECT sexton.make_limits(jsonb_build_array(jsonb_build_object('key', sexton.limit_key_of($2::jsonb, $3::jsonb), 'limit', $2->'limit')),
  coalesce($1::timestamptz, clock_timestamp()))
WHERE $2 ? 'limit'

-- name: pause_job
UPDATE sexton.jobs j SET paused_at = coalesce($1::timestamptz, clock_timestamp()), paused_by = $3::text, note = $4::text WHERE j.id = $2

-- name: note
UPDATE sexton.jobs j SET note = $2::text WHERE j.id = $1

-- name: pause_run
-- The run leaves the line of its limit: a run that waits for its next attempt, or for its rate, may hold the slot of an ordered
-- key. For a ready run, a trigger does it.
WITH held AS MATERIALIZED (
  SELECT r.limit_key, r.slot FROM sexton.runs r WHERE r.id = $1 AND r.state IN ('waiting', 'parked', 'quarantined') AND r.slot IS NOT NULL
), freed AS (
  UPDATE sexton.slots s SET run_id = NULL FROM held h WHERE s.key = h.limit_key AND s.n = h.slot AND s.run_id = $1
)
UPDATE sexton.runs r SET state = 'paused', slot = NULL WHERE r.id = $1

-- name: resume_job
UPDATE sexton.jobs j SET paused_at = NULL, paused_by = NULL, note = NULL WHERE j.id = $1

-- name: resume_run
-- A suspect returns to quarantine.
UPDATE sexton.runs r SET state = CASE WHEN r.company > 0 THEN 'quarantined' WHEN r.due_at <= moment.now THEN 'ready' ELSE 'waiting' END
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) moment
WHERE r.id = $2
RETURNING r.queue, r.state IN ('ready', 'quarantined') AS is_ready, r.state = 'waiting' AND r.due_at < moment.now + interval '3 seconds' AS due_soon

-- name: make_due
UPDATE sexton.runs r SET state = 'ready', due_at = coalesce($1::timestamptz, clock_timestamp()) WHERE r.id = $2
RETURNING r.queue, true AS is_ready, false AS due_soon

-- name: newest_letter
WITH found AS MATERIALIZED (
  SELECT d.id FROM sexton.dead_letters d WHERE d.job_id = $1
)
SELECT f.id FROM found f ORDER BY f.id DESC LIMIT 1
