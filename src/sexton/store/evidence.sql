-- name: live
-- The runs of a job that live, the running ones first, then by due time; with whoever has them. $1 job
SELECT r.id, r.state, r.origin, r.fire_at, r.due_at, r.claimed_at, r.worker_id, w.name AS worker_name, r.token, r.attempt, r.lane, r.queue, r.task,
  r.cancel_requested_at, r.partition
FROM (SELECT * FROM sexton.runs WHERE runs.job_id = $1 ORDER BY runs.state = 'running' DESC, runs.due_at, runs.id LIMIT 20) r
LEFT JOIN LATERAL (SELECT name FROM sexton.workers WHERE workers.id = r.worker_id LIMIT 1) w ON true

-- name: plan
-- How far a recurring job is planned. $1 job
SELECT j.plan_at, j.plan_cursor_at, j.over_at, j.over_as FROM sexton.jobs_recurring j WHERE j.id = $1

-- name: ahead
-- How many ready runs are served before this one, in its lane and above, counted to $5. $1 queue, $2 lane, $3 due, $4 run
SELECT count(*)::int AS count FROM (
  SELECT FROM sexton.runs r
  WHERE r.state = 'ready' AND r.queue = $1::text AND (r.lane, r.due_at, r.id) < ($2::smallint, $3::timestamptz, $4::uuid)
  ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT $5
) c

-- name: fleet
-- Who could serve: live workers of the queue, those of them that know the task, their slots; schedulers by their last beat, and who
-- leads the partition. A few rows per process. $1 now, $2 queue, $3 task, $4 partition, $5 a scheduler silent for longer is gone (s)
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), serving AS MATERIALIZED (
  SELECT w.name, $3::text = ANY (w.tasks) AS knows, w.concurrency, w.running_count, w.draining
  FROM sexton.workers w WHERE w.lost_at IS NULL AND $2::text = ANY (w.queues)
), scheduling AS MATERIALIZED (
  SELECT n.name, n.beat_at, n.beat_at > (SELECT now FROM moment) - make_interval(secs => $5::float8) AS alive, $4::smallint = ANY (n.partitions) AS leads
  FROM sexton.nodes n
)
SELECT (SELECT count(*) FROM sexton.workers w WHERE w.lost_at IS NULL)::int AS worker_count,
  (SELECT count(*) FROM serving)::int AS serving_count,
  (SELECT count(*) FROM serving s WHERE s.knows AND NOT s.draining)::int AS knowing_count,
  (SELECT coalesce(sum(s.concurrency - s.running_count), 0) FROM serving s WHERE s.knows AND NOT s.draining)::int AS free_slot_count,
  (SELECT count(*) FROM scheduling n WHERE n.alive)::int AS node_count,
  (SELECT max(n.beat_at) FROM scheduling n) AS last_node_beat_at,
  (SELECT min(n.name) FROM scheduling n WHERE n.alive AND n.leads) AS leader

-- name: history
-- The newest rows of a job's history: tries, and fires that did not start. $1 job, $2 an id that none of them is older than, $3 at most
SELECT t.id, t.run_id, t.status, t.origin, t.fire_at, t.started_at, t.ended_at, t.attempt, t.reason, t.error, t.result
FROM sexton.executions t
WHERE (t.job_id, t.id) >= ($1::uuid, $2::uuid) AND t.job_id <= $1 AND t.id >= $2
ORDER BY t.job_id DESC, t.id DESC LIMIT $3

-- name: letter
WITH found AS MATERIALIZED (
  SELECT d.id, d.buried_at, d.status, d.reason, d.permanent, d.attempts, d.replay_at FROM sexton.dead_letters d WHERE d.job_id = $1
)
SELECT * FROM found f ORDER BY f.id DESC LIMIT 1
