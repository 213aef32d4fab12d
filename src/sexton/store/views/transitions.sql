-- name: submitted
-- One-time and recurring jobs, whose ids have the first bit set. $1 from this id, $2 at most of each, $3 from this recurring id
(SELECT j.id, j.task, j.queue, j.tenant FROM sexton.jobs j WHERE j.id >= $1::uuid AND j.id < '80000000-0000-0000-0000-000000000000'
 ORDER BY j.id DESC LIMIT $2)
UNION ALL
(SELECT j.id, j.task, j.queue, j.tenant FROM sexton.jobs_recurring j WHERE j.id >= $3::uuid ORDER BY j.id DESC LIMIT $2)

-- name: started
-- Those that run now; those that have ended meanwhile are in `ended`. As many as the fleet has slots: all are read, in the
-- order of their index. $1 since, $2 at most
WITH found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id
)
SELECT f.job_id, f.id AS run_id, f.token, f.claimed_at, f.task, f.queue, f.tenant, f.attempt, f.worker_id
FROM found f WHERE f.claimed_at >= $1::timestamptz ORDER BY f.claimed_at DESC LIMIT $2

-- name: ended
-- With the ending of their job, if this was its last; for a recurring job, which continues, whether this run was buried. $1
-- from this id, $2 at most
SELECT t.id, t.job_id, t.run_id, t.token, t.started_at, t.task, t.queue, t.tenant, t.status, e.status AS ending, t.attempt, t.worker_id, t.reason,
  t.job_id >= '80000000-0000-0000-0000-000000000000' AND EXISTS (SELECT FROM sexton.dead_letters d WHERE d.id = t.id) AS is_buried
FROM (SELECT * FROM sexton.executions WHERE executions.id >= $1::uuid ORDER BY executions.id DESC LIMIT $2) t
LEFT JOIN LATERAL (
  SELECT endings.status FROM sexton.endings WHERE endings.job_id = t.job_id AND endings.execution_id = t.id LIMIT 1
) e ON true
