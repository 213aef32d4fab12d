-- name: history_from
-- The instant from which history is kept: the lower bound of its oldest partition, the smallest UUIDv7 of its instant.
SELECT to_timestamp(('x' || left(replace(min(p.low), '-', ''), 12))::bit(48)::bigint / 1000.0) AS known_from FROM (
  SELECT (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''([0-9a-f-]{36})''\)'))[1] AS low
  FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid
  WHERE i.inhparent = 'sexton.executions'::regclass
) p

-- name: handled
-- Which fires of a job between two instants have run, live or are in the dead letters. A run that was started by hand is not a
-- fire of its schedule. $1 job, $2 from, $3 until (not included), $4 an id that no execution of them is older than
SELECT e.fire_at, 'ran' AS how FROM sexton.executions e
WHERE e.job_id = $1 AND e.fire_at >= $2::timestamptz AND e.fire_at < $3::timestamptz AND e.status = 'succeeded' AND e.origin <> 'now' AND e.id >= $4::uuid
UNION
SELECT r.fire_at, 'lives' FROM sexton.runs r WHERE r.job_id = $1 AND r.fire_at >= $2 AND r.fire_at < $3 AND r.origin <> 'now'
UNION
SELECT d.fire_at, 'buried' FROM sexton.dead_letters d WHERE d.job_id = $1 AND d.fire_at >= $2 AND d.fire_at < $3 AND d.origin <> 'now'

-- name: write
-- In the order given, each due the spacing after the one before. They wait for their turn, so no latest start and no deadline
-- counts from their due time. $1 now, $2 job, $3 fires, $4 spacing (s), $5 whether one at a time
WITH moment AS MATERIALIZED (
  SELECT at AS now, (extract(epoch FROM at) * 1000000)::bigint AS micros FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) m
)
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, timeout_s, lease_s, lane, partition, at_most_once, state, origin, queue, tenant, task,
                         job_version, overlap, limit_key)
SELECT sexton.uuid7(moment.micros + f.ord), j.id, f.fire_at, moment.now + make_interval(secs => (f.ord - 1) * $4::float8), j.timeout_s,
  (j.policy->>'lease_s')::real, j.lane, sexton.partition_of(j.id), j.at_most_once, 'waiting', 'backfill', j.queue, j.tenant, j.task, j.version,
  CASE WHEN $5::boolean THEN 1 ELSE sexton.overlap_of(j.recurrence) END, sexton.limit_key_of(j.policy, j.payload)
FROM moment, unnest($3::timestamptz[]) WITH ORDINALITY AS f (fire_at, ord), sexton.jobs_recurring j
WHERE j.id = $2
ORDER BY f.ord
ON CONFLICT (job_id, fire_at, origin, seq) DO NOTHING
RETURNING fire_at, due_at
