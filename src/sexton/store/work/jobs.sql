-- name: submit
SELECT id, created FROM sexton.submit_jobs($1::jsonb, $2::boolean, $3::timestamptz)

-- name: submit_and_show
SELECT id, created, version, task, tenant, queue, lane, name, payload, policy, timeout_s::float8, at_most_once, idempotency_key, tags,
  submitted_at, submitted_by, trace, due_at
FROM sexton.submit_and_show($1::jsonb, $2::boolean, $3::timestamptz)

-- name: submit_each
-- After a batch has met a lock: each job by itself. $1 documents, $2 notify, $3 now
SELECT id, created, waits_for FROM sexton.submit_each($1::jsonb, $2::boolean, $3::timestamptz)

-- name: show
-- A one-time job has either a live run or an ending, and that gives its status. Every lookup is by key and returns one row, for
-- any plan. The bounds skip partitions. $1 jobs, $2 the lowest, $3 the highest of them
SELECT j.id, j.version, j.task, j.tenant, j.queue, j.lane, j.name, j.payload, j.policy, j.timeout_s::float8, j.at_most_once, j.idempotency_key,
  j.tags, j.submitted_at, j.submitted_by, j.trace, j.paused_at, j.paused_by, j.note,
  coalesce(
    CASE WHEN r.state IN ('running', 'paused') THEN r.state WHEN j.schedule IS NOT NULL AND j.paused_at IS NOT NULL AND j.over_at IS NULL THEN 'paused'
      WHEN r.state IS NOT NULL THEN 'pending' END,
    e.status, j.over_as, 'pending') AS status,
  CASE WHEN j.schedule IS NULL THEN r.due_at ELSE (
    SELECT min(n.due_at) FROM sexton.runs n WHERE n.job_id = j.id AND n.state <> 'running') END AS next_fire_at,
  CASE WHEN j.schedule IS NULL THEN r.fire_at END AS run_at,
  coalesce(r.attempt, 0) AS attempt, coalesce(e.ended_at, CASE WHEN r.id IS NULL THEN j.over_at END) AS ended_at, e.execution_id,
  j.schedule, j.recurrence, j.resume_at, j.over_reason,
  r.id AS run_id, r.worker_id, r.fire_at, r.due_at, r.claimed_at, r.token, r.job_version, r.origin, o.progress, o.output
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, ord)
CROSS JOIN LATERAL (SELECT * FROM sexton.jobs WHERE jobs.id = wanted.id AND jobs.id BETWEEN $2 AND $3 LIMIT 1) j
LEFT JOIN LATERAL (
  SELECT * FROM sexton.runs WHERE runs.job_id = wanted.id ORDER BY runs.state = 'running' DESC, runs.due_at LIMIT 1
) r ON true
LEFT JOIN LATERAL (SELECT * FROM sexton.endings WHERE endings.job_id = wanted.id AND endings.job_id BETWEEN $2 AND $3 LIMIT 1) e ON true
LEFT JOIN LATERAL (
  SELECT * FROM sexton.live_output WHERE r.state = 'running' AND live_output.run_id = r.id AND live_output.token = r.token LIMIT 1
) o ON true
ORDER BY wanted.ord

-- name: tries
-- In the order given; the bounds skip partitions. $1 executions, $2 the lowest, $3 the highest of them
SELECT t.id, t.job_id, t.run_id, t.worker_id, t.fire_at, t.due_at, t.started_at, t.ended_at, t.token, t.job_version, t.attempt, t.origin, t.status,
  t.queue, t.tenant, t.task, t.reason, t.error, t.result, t.progress, t.output
FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, ord)
CROSS JOIN LATERAL (SELECT * FROM sexton.executions WHERE executions.id = wanted.id AND executions.id BETWEEN $2 AND $3 LIMIT 1) t
ORDER BY wanted.ord

-- name: last_tries
-- The newest attempt of each job that waits for its next attempt, or again after a replay; not of a claim made after the job
-- was read. $1 jobs, $2 their live runs, $3 the tokens of those, $4 an id that no execution of them is older than
SELECT t.id, t.job_id, t.run_id, t.worker_id, t.fire_at, t.due_at, t.started_at, t.ended_at, t.token, t.job_version, t.attempt, t.origin, t.status,
  t.queue, t.tenant, t.task, t.reason, t.error, t.result, t.progress, t.output
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS wanted (job_id, run_id, token)
CROSS JOIN LATERAL (
  SELECT * FROM sexton.executions x
  WHERE (x.job_id, x.id) >= (wanted.job_id, $4::uuid) AND x.job_id <= wanted.job_id AND x.id >= $4
    AND (wanted.run_id IS NULL OR x.run_id <> wanted.run_id OR x.token <= wanted.token)
  ORDER BY x.job_id DESC, x.id DESC LIMIT 1) t

-- name: ending
SELECT e.status, e.execution_id FROM sexton.endings e WHERE e.job_id = $1

-- name: executions
SELECT id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version, attempt, origin, status, queue, tenant,
  task, reason, error, result, progress, output
FROM sexton.executions WHERE job_id = $1 AND id >= $2 ORDER BY id

-- name: live_output
SELECT o.progress, o.output FROM sexton.live_output o JOIN sexton.runs r ON r.id = o.run_id AND r.token = o.token WHERE r.job_id = $1
