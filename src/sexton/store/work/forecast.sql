-- name: outlook
-- How far a recurring job is planned, and which planned fires have not started. $1 job
SELECT j.plan_cursor_at, j.fire_count, j.over_at, ARRAY(
  SELECT r.fire_at FROM sexton.runs r
  WHERE r.job_id = j.id AND r.origin = 'schedule' AND r.token = 0 AND r.state IN ('waiting', 'ready', 'parked', 'blocked')
  ORDER BY r.fire_at LIMIT 1000) AS planned
FROM sexton.jobs_recurring j WHERE j.id = $1
