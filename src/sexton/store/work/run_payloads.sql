-- name: of_runs
SELECT p.run_id, p.payload FROM sexton.run_payloads p WHERE p.run_id = ANY ($1::uuid[])

-- name: forget
-- Of runs whose history was dropped ($1 now, $2 seconds kept), unless they live or could be replayed.
DELETE FROM sexton.run_payloads g WHERE g.run_id = ANY (ARRAY(
  SELECT p.run_id FROM sexton.run_payloads p
  WHERE p.run_id < (SELECT sexton.uuid7_floor(coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8)))
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.id = p.run_id)
    AND NOT EXISTS (SELECT FROM sexton.dead_letters d WHERE d.job_id = p.job_id AND d.run_id = p.run_id)
  FOR UPDATE SKIP LOCKED))
