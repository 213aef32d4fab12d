-- name: claim
-- $1 now, $2 worker, $3 queues in the order they are looked into, $4 tasks it knows, $5 how many, $6 grace (s), $7 ahead of a free slot:
-- none whose claim is their start, none with a limit, $8 where the last claim stopped
SELECT * FROM sexton.claim_runs($2::uuid, $3::text[], $4::text[], $5::int, $6::float8, $7::boolean, $8::jsonb, $1::timestamptz)

-- name: replaced
-- Of these runs, those whose job was edited since, with what it was: every attempt of a run is of one version. And those that were
-- fired with a payload of their own. $1 jobs, $2 their runs, $3 the versions of those
SELECT wanted.run_id, coalesce(p.payload, v.payload) AS payload, v.policy, v.version IS NOT NULL AS is_older
FROM unnest($1::uuid[], $2::uuid[], $3::int[]) AS wanted (job_id, run_id, version)
LEFT JOIN LATERAL (
  SELECT job_versions.version, payload, policy FROM sexton.job_versions
  WHERE job_versions.job_id = wanted.job_id AND job_versions.version = wanted.version LIMIT 1
) v ON true
LEFT JOIN LATERAL (SELECT payload FROM sexton.run_payloads WHERE run_payloads.run_id = wanted.run_id LIMIT 1) p ON true
WHERE v.version IS NOT NULL OR p.payload IS NOT NULL

-- name: previous
-- The last try before these runs of recurring jobs, among the newest 100 rows of each: fires that did not start are no tries. A backfill
-- is beside the schedule: only its own runs look at it, and before their own fire.
-- $1 jobs, $2 their runs, $3 an id that no execution is newer than, $4 the fires of those that are a backfill
SELECT wanted.run_id, t.status, t.fire_at
FROM unnest($1::uuid[], $2::uuid[], $4::timestamptz[]) AS wanted (job_id, run_id, before)
CROSS JOIN LATERAL (
  SELECT newest.status, newest.fire_at FROM (
    SELECT x.run_id, x.token, x.status, x.fire_at FROM sexton.executions x
    WHERE x.job_id = wanted.job_id AND x.id <= $3::uuid AND (wanted.before IS NOT NULL OR x.origin <> 'backfill') ORDER BY x.id DESC LIMIT 100
  ) newest
  WHERE newest.run_id <> wanted.run_id AND newest.token > 0 AND (wanted.before IS NULL OR newest.fire_at < wanted.before) LIMIT 1
) t

-- name: finish
SELECT run_id, execution_id, state FROM sexton.finish_runs($2::jsonb, $1::timestamptz)

-- name: promote
-- Due runs of the given partitions become ready, earliest first; the answer names the queues, and tells how long until the next
-- is due ($1 now, $2 partitions, $3 at most, $4 only what is overdue by this many seconds, $5 nothing that was due before this: under
-- load only dead index entries are, domain.marks). First starts of recurring jobs are not for here: what may run beside what is decided under a lock (`schedules.sql`), and `to_decide` says that there is some. Likewise `to_release`: some wait for a limit.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), due AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r
  WHERE r.state = 'waiting' AND r.partition = ANY ($2::smallint[])
    AND r.due_at <= (SELECT now - make_interval(secs => $4::float8) FROM moment) AND r.due_at >= coalesce($5::timestamptz, '-infinity')
    AND (r.overlap = 0 OR r.token > 0)
  ORDER BY r.due_at, r.partition, r.id
  LIMIT $3
  FOR UPDATE SKIP LOCKED
), promoted AS (
  UPDATE sexton.runs r SET state = 'ready'
  WHERE r.id = ANY (ARRAY(SELECT id FROM due))
  RETURNING r.queue, r.due_at
)
SELECT
  ARRAY(SELECT DISTINCT queue FROM promoted) AS queues,
  (SELECT min(due_at) FROM promoted) AS first_due_at,
  (SELECT max(due_at) FROM promoted) AS last_due_at,
  (SELECT count(*) FROM promoted)::int AS promoted_count,
  (SELECT extract(epoch FROM r.due_at - moment.now)::float8 FROM sexton.runs r, moment
   WHERE r.state = 'waiting' AND r.partition = ANY ($2::smallint[]) AND r.due_at > (SELECT now FROM moment)
   ORDER BY r.due_at LIMIT 1) AS next_due_s,
  EXISTS (SELECT FROM sexton.runs r
          WHERE r.state = 'waiting' AND r.overlap > 0 AND r.token = 0 AND r.partition = ANY ($2)
            AND r.due_at <= (SELECT now - make_interval(secs => $4) FROM moment))
  OR EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'blocked') AS to_decide,
  EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'parked') AS to_release,
  EXISTS (SELECT FROM sexton.queues q WHERE q.ageing_s IS NOT NULL OR q.release_rate IS NOT NULL) AS to_tend

-- name: hasten
-- What was sent away need not wait any longer, unless somebody has had it since: the token tells. $1 now, $2 runs, $3 their tokens
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.id FROM moment, unnest($2::uuid[], $3::bigint[]) AS x(id, token) CROSS JOIN LATERAL (
    SELECT o.id FROM sexton.runs o
    WHERE o.id = x.id AND o.token = x.token AND o.state = 'waiting' AND o.due_at > moment.now
    LIMIT 1 FOR UPDATE SKIP LOCKED) r
)
UPDATE sexton.runs r SET due_at = moment.now FROM moment WHERE r.id = ANY (ARRAY(SELECT id FROM found)) RETURNING r.id

-- name: ready_queues
SELECT DISTINCT queue FROM sexton.runs WHERE state = 'ready' ORDER BY queue

-- name: announce
SELECT sexton.announce($1::text[], $2::boolean)

-- name: abandoned
-- Runs whose worker was declared dead long enough ago for their own lease, or is not known at all. What was handed over has none.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r
  WHERE r.state = 'running' AND r.worker_id <> sexton.callbacks() AND NOT EXISTS (
    SELECT FROM sexton.workers w
    WHERE w.id = r.worker_id AND (
      w.lost_at IS NULL OR w.lost_at + make_interval(secs => r.lease_s - coalesce(w.lease_s, $2::float8)) > (SELECT now FROM moment)))
  ORDER BY r.worker_id LIMIT $3 FOR UPDATE OF r SKIP LOCKED  -- the order of the index, or a plan made on an empty table walks them all
)
SELECT f.id, f.job_id, f.worker_id, f.token, f.attempt, f.lost_count, f.at_most_once, f.seq, f.origin,
  extract(epoch FROM f.deadline_at - moment.now)::float8 AS deadline_left_s, sexton.policy_of(f.job_id, f.job_version) AS policy, o.progress, o.output,
  extract(epoch FROM moment.now - f.claimed_at)::float8 AS held_s
FROM found f CROSS JOIN moment
LEFT JOIN sexton.live_output o ON o.run_id = f.id AND o.token = f.token
ORDER BY f.id

-- name: overrunning
-- Runs that should have ended, timeout and grace included, though their worker still beats. The running are few (the slots of the
-- fleet), so they are looked through without an index of their own on the hot path.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r
  WHERE r.state = 'running' AND r.must_end_at <= (SELECT now FROM moment)
    -- must_end_at knows the grace of the worker; a job that brings its own has that as well
    AND r.must_end_at + make_interval(secs => coalesce(
      (sexton.policy_of(r.job_id, r.job_version)->>'grace_s')::float8, 0)) <= (SELECT now FROM moment)
  ORDER BY r.worker_id LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT f.id, f.job_id, f.worker_id, f.token, f.attempt, f.lost_count, f.at_most_once, f.seq, f.origin,
  extract(epoch FROM f.deadline_at - moment.now)::float8 AS deadline_left_s, sexton.policy_of(f.job_id, f.job_version) AS policy, o.progress, o.output,
  extract(epoch FROM moment.now - f.claimed_at)::float8 AS held_s, f.cancel_requested_at IS NOT NULL AS cancel_requested
FROM found f CROSS JOIN moment
LEFT JOIN sexton.live_output o ON o.run_id = f.id AND o.token = f.token
ORDER BY f.id

-- name: expired
-- Runs that nobody started in time.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r
  WHERE r.state <> 'running' AND (r.start_by IS NOT NULL OR r.deadline_at IS NOT NULL)
    AND least(r.start_by, r.deadline_at) <= (SELECT now FROM moment)
  ORDER BY least(r.start_by, r.deadline_at) LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT f.id, f.job_id, f.worker_id, f.token, f.attempt, f.lost_count, f.at_most_once, f.seq, f.origin,
  extract(epoch FROM f.deadline_at - moment.now)::float8 AS deadline_left_s, NULL::jsonb AS policy, NULL::jsonb AS progress,
  NULL::text AS output, NULL::float8 AS held_s, f.start_by, f.deadline_at
FROM found f CROSS JOIN moment ORDER BY f.id

-- name: of_job
-- Locks every live run of a job, in id order. Found by the order of their index, or a plan made on an empty table walks them all.
WITH found AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r WHERE r.job_id = $1 ORDER BY r.fire_at, r.origin, r.seq
)
SELECT r.id, r.job_id, r.worker_id, r.token, r.attempt, r.lost_count, r.at_most_once, r.seq, r.origin, NULL::float8 AS deadline_left_s,
  NULL::jsonb AS policy
FROM sexton.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM found)) ORDER BY r.id FOR UPDATE

-- name: request_cancel
-- What was handed over has nobody who could be made to stop: it is ended a little later.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
UPDATE sexton.runs r SET cancel_requested_at = coalesce(r.cancel_requested_at, m.now),
  must_end_at = CASE WHEN r.worker_id = sexton.callbacks() THEN sexton.callback_ends_at(
    r.claimed_at, r.timeout_s, r.deadline_at, coalesce(r.cancel_requested_at, m.now), r.job_id, r.job_version, m.now) ELSE r.must_end_at END
FROM moment m WHERE r.id = ANY ($2::uuid[]) AND r.state = 'running'
RETURNING r.id, r.worker_id

-- name: fate
-- After a report that changed nothing: was it recorded before (its reply was lost), or is the lease still ours?
-- A sweeper and the heartbeat end tries in the worker's name too, as lost, timed out or released: such a row is ours only if
-- that is what we reported, and a loss never is. What stands may be another outcome than the reported one: ctx.transaction()
-- had committed a success before. $1 run, $2 job, $3 worker, $4 token, $5 an id from before the run's claim, $6 the reported status
SELECT recorded.status, recorded.reason, recorded.ending,
  EXISTS (SELECT FROM sexton.runs r WHERE r.id = $1 AND r.worker_id = $3 AND r.token = $4) AS held
FROM (SELECT) AS one LEFT JOIN LATERAL (
  SELECT e.status, e.reason, d.status AS ending
  FROM sexton.executions e LEFT JOIN sexton.endings d ON d.job_id = $2 AND d.execution_id = e.id
  WHERE e.job_id = $2 AND e.id >= $5 AND e.run_id = $1 AND e.worker_id = $3 AND e.token = $4
    AND ($6::text IS NULL OR (e.status = $6 AND $6 <> 'lost') OR e.status NOT IN ('lost', 'timed_out', 'released'))
  LIMIT 1
) recorded ON true

-- name: tell
-- Progress and output so far of running handlers, only where the lease still stands.
INSERT INTO sexton.live_output AS o (run_id, token, updated_at, progress, output)
SELECT x.run_id, x.token, coalesce($1::timestamptz, clock_timestamp()), x.progress, x.output
FROM jsonb_to_recordset($3::jsonb) AS x (run_id uuid, token bigint, progress jsonb, output text)
JOIN sexton.runs r ON r.id = x.run_id AND r.token = x.token AND r.worker_id = $2
ORDER BY x.run_id
ON CONFLICT (run_id) DO UPDATE SET
  token = excluded.token, updated_at = excluded.updated_at, progress = excluded.progress, output = excluded.output

-- name: forget_output
DELETE FROM sexton.live_output o WHERE NOT EXISTS (SELECT FROM sexton.runs r WHERE r.id = o.run_id AND r.token = o.token)
  AND o.updated_at < coalesce($1::timestamptz, clock_timestamp()) - interval '10 minutes'
