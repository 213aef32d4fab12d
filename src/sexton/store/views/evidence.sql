-- name: live
-- The live runs of a job, the running ones first, then by due time; with the workers that hold them. $1 now, $2 job
SELECT r.id, r.state, r.origin, r.fire_at, r.due_at, r.claimed_at, r.worker_id,
  coalesce(w.name, CASE WHEN r.worker_id = sexton.callbacks() THEN 'its target, which is to call back' END) AS worker_name, r.token, r.attempt, r.lane, r.queue, r.task,
  r.cancel_requested_at, r.partition, r.tenant, r.limit_key, r.company, r.batch_limit, w.silent_since
FROM (SELECT * FROM sexton.runs WHERE runs.job_id = $2 ORDER BY runs.state = 'running' DESC, runs.due_at, runs.id LIMIT 20) r
LEFT JOIN LATERAL (
  SELECT o.name, CASE WHEN NOT sexton.is_alive(o.beat_at, o.lost_at, coalesce(o.lease_s, o.beat_within_s), coalesce($1::timestamptz, clock_timestamp()))
                 THEN o.beat_at END AS silent_since
  FROM sexton.workers o WHERE o.id = r.worker_id LIMIT 1
) w ON true

-- name: plan
-- How far a recurring job is planned. $1 job
SELECT j.plan_at, j.plan_cursor_at, j.over_at, j.over_as FROM sexton.jobs_recurring j WHERE j.id = $1

-- name: ahead
-- The runs that are certain to be served before a ready run: higher lanes, and earlier runs of its own tenant in its lane, each
-- counted up to $6; and how many other tenants share its lane. $1 queue, $2 lane, $3 tenant, $4 due, $5 run
WITH RECURSIVE others AS (
  (SELECT r.tenant, 1 AS step FROM sexton.runs r
   WHERE r.state = 'ready' AND r.queue = $1::text AND r.lane = $2::smallint ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
  UNION ALL
  SELECT n.tenant, o.step + 1 FROM others o CROSS JOIN LATERAL (
    SELECT r.tenant FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = $1 AND r.lane = $2 AND r.tenant > o.tenant
    ORDER BY r.tenant, r.due_at, r.id LIMIT 1) n
  WHERE o.step < $6::int
)
SELECT
  (SELECT count(*) FROM (
    SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = $1 AND r.lane < $2
    ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT $6) c)::int AS above_count,
  (SELECT count(*) FROM (
    SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = $1 AND r.lane = $2 AND r.tenant = $3::text
      AND (r.due_at, r.id) < ($4::timestamptz, $5::uuid)
    ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT $6) c)::int AS own_count,
  (SELECT count(*) FROM others o WHERE o.tenant <> $3)::int AS others_count

-- name: queue_rate
-- How many runs a queue with a release rate may release now. $1 now, $2 queue
SELECT sexton.tokens(q.bucket_at, q.release_rate, q.release_burst, coalesce($1::timestamptz, clock_timestamp())) AS tokens
FROM sexton.queues q WHERE q.name = $2::text AND q.release_rate IS NOT NULL

-- name: tenant_slots
-- How many runs a tenant has at once, if that is limited. $1 tenant, $2 counted to
SELECT count(*)::int AS held_count FROM (
  SELECT FROM sexton.slots s WHERE s.key = '@tenant:' || $1::text AND s.run_id IS NOT NULL LIMIT $2) c

-- name: fleet
-- The processes that could run it: live workers of the queue, those of them that know the task, their slots of the kind that the
-- task needs; schedulers by their last heartbeat, and the leader of the partition. A few rows per process. $1 now, $2 queue, $3
-- task, $4 partition
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), known AS MATERIALIZED (
  SELECT w.*, sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), moment.now) AS alive FROM sexton.workers w, moment
), serving AS MATERIALIZED (
  SELECT $3::text = ANY (w.tasks) AS knows, w.draining, ($3 = ANY (w.process_tasks)) IS TRUE AS in_process, ($3 = ANY (w.batch_tasks)) IS TRUE AS in_batches, greatest(0, CASE
    WHEN $3 = ANY (w.batch_tasks) THEN w.batch_slots - w.batch_running_count
    WHEN $3 = ANY (w.process_tasks) THEN w.process_slots - w.process_running_count
    ELSE w.concurrency - w.process_slots - w.batch_slots - (w.running_count - w.process_running_count - w.batch_running_count) END) AS free_count
  FROM known w WHERE w.alive AND NOT w.quarantine AND $2::text = ANY (w.queues)
), scheduling AS MATERIALIZED (
  SELECT n.name, n.beat_at, sexton.is_alive(n.beat_at, NULL, sexton.node_lease_s(), moment.now) AS alive, $4::smallint = ANY (n.partitions) AS leads
  FROM sexton.nodes n, moment
)
SELECT (SELECT count(*) FROM known w WHERE w.alive)::int AS worker_count,
  (SELECT count(*) FROM known w WHERE NOT w.alive AND w.lost_at IS NULL)::int AS silent_count,
  (SELECT max(w.beat_at) FROM known w WHERE NOT w.alive AND w.lost_at IS NULL) AS silent_since,
  (SELECT count(*) FROM serving)::int AS serving_count,
  (SELECT count(*) FROM serving s WHERE s.knows AND NOT s.draining)::int AS knowing_count,
  (SELECT count(*) FROM serving s WHERE s.knows AND s.draining)::int AS draining_count,
  (SELECT coalesce(sum(s.free_count), 0) FROM serving s WHERE s.knows AND NOT s.draining)::int AS free_slot_count,
  (SELECT count(*) FROM serving s WHERE s.knows AND NOT s.draining AND s.in_process)::int AS process_knowing_count,
  (SELECT coalesce(sum(s.free_count), 0) FROM serving s WHERE s.knows AND NOT s.draining AND s.in_process)::int AS free_process_slot_count,
  (SELECT count(*) FROM serving s WHERE s.knows AND NOT s.draining AND s.in_batches)::int AS batch_knowing_count,
  (SELECT coalesce(sum(s.free_count), 0) FROM serving s WHERE s.knows AND NOT s.draining AND s.in_batches)::int AS free_batch_slot_count,
  (SELECT count(*) FROM scheduling n WHERE n.alive)::int AS node_count,
  (SELECT max(n.beat_at) FROM scheduling n) AS last_node_beat_at,
  (SELECT min(n.name) FROM scheduling n WHERE n.alive AND n.leads) AS leader

-- name: lacking
-- Live workers that could run it, and said that they lack a secret or a setting. $1 now, $2 queue, $3 task
SELECT w.name, w.lacks FROM sexton.workers w
WHERE cardinality(w.lacks) > 0 AND NOT w.draining AND NOT w.quarantine AND $2::text = ANY (w.queues) AND $3::text = ANY (w.tasks)
  AND sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), coalesce($1::timestamptz, clock_timestamp()))
ORDER BY w.name

-- name: history
-- The newest rows of a job's history: attempts, and fires that did not start. $1 job, $2 an id that none of them is older than,
-- $3 at most
SELECT t.id, t.run_id, t.status, t.origin, t.fire_at, t.started_at, t.ended_at, t.attempt, t.reason, t.error, t.result
FROM sexton.executions t
WHERE (t.job_id, t.id) >= ($1::uuid, $2::uuid) AND t.job_id <= $1 AND t.id >= $2
ORDER BY t.job_id DESC, t.id DESC LIMIT $3

-- name: letter
WITH found AS MATERIALIZED (
  SELECT d.id, d.buried_at, d.status, d.reason, d.permanent, d.attempts, d.replay_at FROM sexton.dead_letters d WHERE d.job_id = $1
)
SELECT * FROM found f ORDER BY f.id DESC LIMIT 1
