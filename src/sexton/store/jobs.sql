-- name: submit
SELECT id, created FROM sexton.submit_jobs($1::jsonb, $2::boolean, $3::timestamptz)

-- name: status
-- A one-time job has either a live run or an ending; which of them says all. $1 job
SELECT j.id, j.version, j.task, j.tenant, j.queue, j.lane, j.name, j.payload, j.tags, j.submitted_at, j.submitted_by,
  CASE WHEN r.running THEN 'running' WHEN r.job_id IS NOT NULL THEN 'pending' ELSE e.status END AS status,
  r.due_at AS next_fire_at, r.attempt, e.ended_at, e.execution_id
FROM sexton.jobs j
LEFT JOIN LATERAL (
  SELECT runs.job_id, bool_or(runs.state = 'running') AS running, min(runs.due_at) AS due_at, max(runs.attempt) AS attempt
  FROM sexton.runs WHERE runs.job_id = j.id GROUP BY runs.job_id
) r ON true
LEFT JOIN sexton.endings e ON e.job_id = j.id
WHERE j.id = $1

-- name: ending
SELECT e.status, x.result, x.error, x.reason
FROM sexton.endings e LEFT JOIN sexton.executions x ON x.id = e.execution_id
WHERE e.job_id = $1

-- name: executions
SELECT id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version, attempt, origin, status, queue, tenant,
  task, reason, error, result, progress, output
FROM sexton.executions WHERE job_id = $1 AND id >= $2 ORDER BY id

-- name: live_output
SELECT o.progress, o.output FROM sexton.live_output o JOIN sexton.runs r ON r.id = o.run_id AND r.token = o.token WHERE r.job_id = $1
