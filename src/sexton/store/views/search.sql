-- name: newest
-- Each of the statements down to by_queue scans one index from the newest id down: $1 lowest id, $2 below this id, $3 at most,
-- $4 the value to find. Where a table has more than one index in the order of ids, the value is part of the order and of a row
-- comparison. So no other index can serve, and a plan made when all jobs had one tenant does not scan them all for the next
-- tenant. The plain bounds on the id skip partitions.
SELECT j.id FROM sexton.jobs j WHERE j.id >= $1::uuid AND j.id < $2::uuid ORDER BY j.id DESC LIMIT $3

-- name: running
-- As many as the fleet has slots: all of them are read, in the order of their index.
WITH found AS MATERIALIZED (
  SELECT r.job_id FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id
)
SELECT DISTINCT f.job_id AS id FROM found f WHERE f.job_id >= $1::uuid AND f.job_id < $2::uuid ORDER BY f.job_id DESC LIMIT $3

-- name: paused
SELECT r.job_id AS id FROM sexton.runs r
WHERE r.state = 'paused' AND uuid_send(r.job_id) >= uuid_send($1::uuid) AND uuid_send(r.job_id) < uuid_send($2::uuid)
ORDER BY uuid_send(r.job_id) DESC LIMIT $3

-- name: live
-- Pending ones, which include the few that run or are paused.
SELECT r.job_id AS id FROM sexton.runs r WHERE r.job_id >= $1::uuid AND r.job_id < $2::uuid ORDER BY r.job_id DESC LIMIT $3

-- name: completed
-- Among all ended ones, because most of them completed.
SELECT e.job_id AS id FROM sexton.endings e WHERE e.job_id >= $1::uuid AND e.job_id < $2::uuid ORDER BY e.job_id DESC LIMIT $3

-- name: not_completed
SELECT e.job_id AS id FROM sexton.endings e
WHERE (e.status, e.job_id) >= ($4::text, $1::uuid) AND (e.status, e.job_id) < ($4, $2::uuid) AND e.job_id >= $1 AND e.job_id < $2
  AND e.status <> 'completed'
ORDER BY e.status DESC, e.job_id DESC LIMIT $3

-- name: by_tag
SELECT t.job_id AS id FROM sexton.job_tags t
WHERE t.tag = $4::text AND t.job_id >= $1::uuid AND t.job_id < $2::uuid ORDER BY t.job_id DESC LIMIT $3

-- name: by_name
SELECT j.id FROM sexton.jobs j
WHERE (j.name, j.id) >= ($4::text, $1::uuid) AND (j.name, j.id) < ($4, $2::uuid) AND j.id >= $1 AND j.id < $2 AND j.name IS NOT NULL
ORDER BY j.name DESC, j.id DESC LIMIT $3

-- name: by_tenant
SELECT j.id FROM sexton.jobs j
WHERE (j.tenant, j.id) >= ($4::text, $1::uuid) AND (j.tenant, j.id) < ($4, $2::uuid) AND j.id >= $1 AND j.id < $2
ORDER BY j.tenant DESC, j.id DESC LIMIT $3

-- name: by_task
SELECT j.id FROM sexton.jobs j
WHERE (j.task, j.id) >= ($4::text, $1::uuid) AND (j.task, j.id) < ($4, $2::uuid) AND j.id >= $1 AND j.id < $2
ORDER BY j.task DESC, j.id DESC LIMIT $3

-- name: by_queue
SELECT j.id FROM sexton.jobs j
WHERE (j.queue, j.id) >= ($4::text, $1::uuid) AND (j.queue, j.id) < ($4, $2::uuid) AND j.id >= $1 AND j.id < $2
ORDER BY j.queue DESC, j.id DESC LIMIT $3

-- name: wanted_jobs
-- Which of the ids in $1 match all filters, in the order given. Each lookup is a scalar subquery of one row, which no plan can
-- turn into a hash of the whole table. $2 at most, $3 status, $4 name, $5 tag, $6 tenant, $7 queue, $8 task, $9 and $10
-- submitted from and until
SELECT given.id FROM unnest($1::uuid[]) WITH ORDINALITY AS given (id, ord)
WHERE ($3::text IS NULL OR $3 = coalesce(
    (SELECT CASE WHEN r.state = 'running' THEN r.state END FROM sexton.runs r
     WHERE r.job_id = given.id AND given.id >= '80000000-0000-0000-0000-000000000000' ORDER BY r.state = 'running' DESC LIMIT 1),
    (SELECT 'paused' FROM sexton.jobs_recurring k WHERE k.id = given.id AND k.paused_at IS NOT NULL AND k.over_at IS NULL LIMIT 1),
    (SELECT CASE WHEN r.state IN ('running', 'paused') THEN r.state ELSE 'pending' END FROM sexton.runs r
     WHERE r.job_id = given.id ORDER BY r.state = 'running' DESC LIMIT 1),
    (SELECT e.status FROM sexton.endings e WHERE e.job_id = given.id LIMIT 1),
    (SELECT coalesce(k.over_as, 'pending') FROM sexton.jobs_recurring k WHERE k.id = given.id LIMIT 1)))
  AND (coalesce($4::text, $5::text, $6::text, $7::text, $8::text) IS NULL AND coalesce($9::timestamptz, $10::timestamptz) IS NULL OR (
    SELECT ($4 IS NULL OR j.name = $4) AND ($5 IS NULL OR $5 = ANY (j.tags)) AND ($6 IS NULL OR j.tenant = $6)
      AND ($7 IS NULL OR j.queue = $7) AND ($8 IS NULL OR j.task = $8)
      AND ($9 IS NULL OR j.submitted_at >= $9) AND ($10 IS NULL OR j.submitted_at < $10)
    FROM sexton.jobs j WHERE j.id = given.id LIMIT 1))
ORDER BY given.ord LIMIT $2

-- name: newest_executions
SELECT t.id FROM sexton.executions t WHERE t.id >= $1::uuid AND t.id < $2::uuid ORDER BY t.id DESC LIMIT $3

-- name: executions_of_job
SELECT t.id FROM sexton.executions t
WHERE (t.job_id, t.id) >= ($4::uuid, $1::uuid) AND (t.job_id, t.id) < ($4, $2::uuid) AND t.id >= $1 AND t.id < $2
ORDER BY t.job_id DESC, t.id DESC LIMIT $3

-- name: wanted_executions
-- $1 ids, $2 at most, $3 status, $4 task, $5 tenant, $6 queue, $7 and $8 started from and until
SELECT given.id FROM unnest($1::uuid[]) WITH ORDINALITY AS given (id, ord)
WHERE (
  SELECT ($3::text IS NULL OR t.status = $3) AND ($4::text IS NULL OR t.task = $4) AND ($5::text IS NULL OR t.tenant = $5)
    AND ($6::text IS NULL OR t.queue = $6) AND ($7::timestamptz IS NULL OR t.started_at >= $7) AND ($8::timestamptz IS NULL OR t.started_at < $8)
  FROM sexton.executions t WHERE t.id = given.id LIMIT 1)
ORDER BY given.ord LIMIT $2

-- name: running_executions
-- All running ones, in the order of their index; then those that match, with their progress and output so far. $1 lowest run,
-- $2 below this run, $3 at most, $4 job, $5 task, $6 tenant, $7 queue, $8 and $9 started from and until
WITH found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id
)
SELECT NULL::uuid AS id, f.job_id, f.id AS run_id, f.worker_id, f.fire_at, f.due_at, f.claimed_at AS started_at, NULL::timestamptz AS ended_at,
  f.token, f.job_version, f.attempt, f.origin, 'running' AS status, f.queue, f.tenant, f.task, NULL::text AS reason, NULL::jsonb AS error,
  NULL::jsonb AS result, o.progress, o.output
FROM found f LEFT JOIN LATERAL (SELECT * FROM sexton.live_output WHERE run_id = f.id AND token = f.token LIMIT 1) o ON true
WHERE f.id >= $1::uuid AND f.id < $2::uuid AND ($4::uuid IS NULL OR f.job_id = $4) AND ($5::text IS NULL OR f.task = $5)
  AND ($6::text IS NULL OR f.tenant = $6) AND ($7::text IS NULL OR f.queue = $7)
  AND ($8::timestamptz IS NULL OR f.claimed_at >= $8) AND ($9::timestamptz IS NULL OR f.claimed_at < $9)
ORDER BY f.id DESC LIMIT $3
