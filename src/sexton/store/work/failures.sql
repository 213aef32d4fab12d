-- name: consecutive
-- Consecutive failures: the fires of these jobs that failed permanently since the last success, and the error of the newest. A
-- manual run that succeeds ends the series, but a backfill does not. $1 jobs
WITH first AS MATERIALIZED (
  SELECT w.job_id, f.id FROM unnest($1::uuid[]) AS w (job_id)
  CROSS JOIN LATERAL (SELECT id FROM sexton.failures WHERE failures.job_id = w.job_id ORDER BY id LIMIT 1) f
), reached AS MATERIALIZED (
  SELECT first.job_id, (
    SELECT x.id FROM sexton.executions x
    WHERE x.job_id = first.job_id AND x.id > first.id AND x.status = 'succeeded' AND x.origin <> 'backfill' ORDER BY x.id DESC LIMIT 1) AS success_id
  FROM first
), over AS (
  DELETE FROM sexton.failures d WHERE d.ctid = ANY (ARRAY(
    SELECT f.ctid FROM reached r JOIN sexton.failures f ON f.job_id = r.job_id AND f.id < r.success_id FOR UPDATE OF f SKIP LOCKED))
)
SELECT r.job_id, count(*)::int AS failed_count, (array_agg(f.said ORDER BY f.id DESC))[1] AS error
FROM reached r JOIN sexton.failures f ON f.job_id = r.job_id AND (r.success_id IS NULL OR f.id > r.success_id)
GROUP BY r.job_id

-- name: reached
-- Jobs with as many failed fires as `pause_after`, or more. Some of these may be older than the last success: ask `consecutive`. $1 at most
SELECT f.job_id
FROM (SELECT o.job_id, count(*) AS failed_count FROM sexton.failures o GROUP BY o.job_id) f
JOIN sexton.jobs_recurring j ON j.id = f.job_id
WHERE j.paused_at IS NULL AND j.over_at IS NULL AND to_jsonb(f.failed_count) >= j.recurrence->'pause_after'
LIMIT $1

-- name: clear
DELETE FROM sexton.failures f WHERE f.job_id = $1

-- name: forget
-- Of jobs that are over.
DELETE FROM sexton.failures d WHERE d.ctid = ANY (ARRAY(
  SELECT f.ctid FROM sexton.failures f WHERE NOT EXISTS (SELECT FROM sexton.jobs_recurring j WHERE j.id = f.job_id AND j.over_at IS NULL)
  FOR UPDATE SKIP LOCKED))
