-- name: claim
-- $1 now, $2 worker, $3 queues in the order in which they are searched, $4 tasks it knows, $5 how many, $6 grace (s), $7 ahead
-- of a free slot: no at-most-once runs, none with a limit, $8 where the last claim stopped
SELECT * FROM sexton.claim_runs($2::uuid, $3::text[], $4::text[], $5::int, $6::float8, $7::boolean, $8::jsonb, $1::timestamptz)

-- name: batch_facts
-- Of runs of a batch task that were just claimed. $1 runs
SELECT r.id, r.batch_limit, r.limit_key FROM sexton.runs r
WHERE r.id = ANY ($1::uuid[]) AND (r.batch_limit IS NOT NULL OR r.limit_key IS NOT NULL)

-- name: claim_suspects
-- $1 now, $2 worker, $3 queues, $4 tasks it knows, $5 how many, $6 grace (s). The columns are those of `claim`.
SELECT c.id, c.job_id, c.worker_id, c.token, c.attempt, c.lost_count, c.at_most_once, c.seq, c.origin,
  extract(epoch FROM c.deadline_at - c.claimed_at)::float8 AS deadline_left_s,
  CASE WHEN c.limit_key IS NULL THEN j.policy ELSE nullif(j.policy - 'limit', '{}') END AS policy, c.job_version, c.fire_at, c.due_at, c.claimed_at, c.timeout_s::float8,
  c.queue, c.tenant, c.lane, c.task, j.name, j.payload, j.idempotency_key, k.execution_id AS completed_by, j.trace, 0 AS turn,
  c.limit_key IS NOT NULL OR c.tenant_slot IS NOT NULL AS is_limited
FROM sexton.claim_suspects($2::uuid, $3::text[], $4::text[], $5::int, $6::float8, $1::timestamptz) c
LEFT JOIN LATERAL (SELECT * FROM sexton.jobs WHERE jobs.id = c.job_id LIMIT 1) j ON true
LEFT JOIN LATERAL (
  SELECT o.execution_id FROM sexton.idempotency_keys o
  WHERE j.idempotency_key IS NOT NULL AND o.tenant = c.tenant AND o.key = j.idempotency_key AND o.job_id = c.job_id
    AND o.completed_at IS NOT NULL LIMIT 1
) k ON true
ORDER BY c.due_at, c.id

-- name: count_suspects
-- $1 now, $2 queues, $3 tasks, $4 counted to
SELECT sexton.count_suspects($2::text[], $3::text[], $4::int, coalesce($1::timestamptz, clock_timestamp())) AS count

-- name: replaced
-- Of these runs, those whose job was edited since, with the older version: every attempt of a run has the same version. Also
-- those with their own payload. $1 jobs, $2 their runs, $3 the versions of those
SELECT wanted.run_id, coalesce(p.payload, v.payload) AS payload, v.policy, v.version IS NOT NULL AS is_older
FROM unnest($1::uuid[], $2::uuid[], $3::int[]) AS wanted (job_id, run_id, version)
LEFT JOIN LATERAL (
  SELECT job_versions.version, payload, policy FROM sexton.job_versions
  WHERE job_versions.job_id = wanted.job_id AND job_versions.version = wanted.version LIMIT 1
) v ON true
LEFT JOIN LATERAL (SELECT payload FROM sexton.run_payloads WHERE run_payloads.run_id = wanted.run_id LIMIT 1) p ON true
WHERE v.version IS NOT NULL OR p.payload IS NOT NULL

-- name: previous
-- The last attempt before these runs of recurring jobs, among the newest 100 rows of each. Fires that did not start do not count
-- as attempts. A backfill run is visible only to runs of the same backfill, and only if its fire is before theirs. $1 jobs,
-- $2 their runs, $3 an id that no execution is newer than, $4 the fires of those that are a backfill
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
SELECT run_id, execution_id, state
FROM sexton.finish_batch($2::uuid[], $3::uuid[], $4::bigint[], $5::float8[], $6::float8[], $7::jsonb, $8::jsonb, $1::timestamptz)

-- name: finish_each
-- After a batch has met a lock: each report by itself. $1 now, $2 reports
SELECT run_id, execution_id, state, is_locked FROM sexton.finish_each($2::jsonb, $1::timestamptz)

-- name: lock_holders
-- The sessions whose transactions have locked these runs. A lock that several sessions share has no single holder. $1 runs
SELECT r.id AS run_id, a.pid, a.usename::text AS role, a.application_name, a.xact_start
FROM sexton.runs r
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = r.xmax AND l.granted
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE r.id = ANY ($1::uuid[])

-- name: promote
-- Due runs of the given partitions become ready, earliest first. Returns their queues, and the seconds until the next is due
-- ($1 now, $2 partitions, $3 at most, $4 only runs overdue by this many seconds, $5 no runs due before this: under load those
-- are only dead index entries, domain.claim_cursors). First starts of recurring jobs are not promoted here: their overlap
-- policy is decided under a lock (`schedules.sql`), and `to_decide` says that there are some. Likewise `to_release`: some runs
-- wait for a limit.
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
  ARRAY(SELECT DISTINCT queue FROM promoted ORDER BY queue) AS queues,
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

-- name: make_due
-- Postponed runs become due now, unless they were claimed since: the token shows it. $1 now, $2 runs, $3 their tokens
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
-- Runs whose worker was declared dead longer ago than it keeps them, or does not exist. Runs that were handed over have no
-- worker. `held_count`: how many the worker held when it was declared dead; runs with a longer lease are found later, and a claim may
-- have committed since, so the greater number counts.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r
  WHERE r.state = 'running' AND r.worker_id <> sexton.callbacks() AND NOT EXISTS (
    SELECT FROM sexton.workers w
    WHERE w.id = r.worker_id AND (
      w.lost_at IS NULL OR w.lost_at + make_interval(secs => sexton.kept_s(r.lease_s, r.at_most_once, coalesce(w.lease_s, $2::float8), w.lease_left_s))
        > (SELECT now FROM moment)))
  ORDER BY r.worker_id LIMIT $3 FOR UPDATE OF r SKIP LOCKED  -- the order of the index; without it, a plan made on an empty table would scan all runs
), together AS MATERIALIZED (
  SELECT r.worker_id, count(*) AS held_count FROM sexton.runs r
  WHERE r.state = 'running' AND r.worker_id = ANY (ARRAY(SELECT DISTINCT f.worker_id FROM found f)) GROUP BY r.worker_id
)
SELECT f.id, f.job_id, f.worker_id, f.token, f.attempt, f.lost_count, f.at_most_once, f.seq, f.origin,
  extract(epoch FROM f.deadline_at - moment.now)::float8 AS deadline_left_s, sexton.policy_of(f.job_id, f.job_version) AS policy, o.progress, o.output,
  extract(epoch FROM moment.now - f.claimed_at)::float8 AS held_s,
  greatest(w.held_at_loss, t.held_count, 1)::int AS held_count, coalesce(w.lost_with_parent, false) AS with_parent, w.lost_reason, f.task,
  f.cancel_requested_at IS NOT NULL AS cancel_requested
FROM found f CROSS JOIN moment
LEFT JOIN together t ON t.worker_id = f.worker_id
LEFT JOIN sexton.workers w ON w.id = f.worker_id
LEFT JOIN sexton.live_output o ON o.run_id = f.id AND o.token = f.token
ORDER BY f.id

-- name: overrunning
-- Runs that should have ended, timeout and grace included, although their worker is alive. Running runs are few (the slots of
-- the fleet), so they are scanned, without an extra index on the hot path.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r
  WHERE r.state = 'running' AND r.must_end_at <= (SELECT now FROM moment)
    -- must_end_at includes the grace of the worker; a job with its own grace gets that as well
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
-- Runs that no worker started in time.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
  SELECT r.id, r.job_id, r.worker_id, r.token, r.attempt, r.lost_count, r.at_most_once, r.seq, r.origin,
    extract(epoch FROM r.deadline_at - (SELECT now FROM moment))::float8 AS deadline_left_s
  FROM sexton.runs r
  WHERE r.state <> 'running' AND (r.start_by IS NOT NULL OR r.deadline_at IS NOT NULL)
    AND least(r.start_by, r.deadline_at) <= (SELECT now FROM moment)
  ORDER BY least(r.start_by, r.deadline_at) LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT f.*, NULL::jsonb AS policy FROM found f ORDER BY f.id

-- name: of_job
-- Locks every live run of a job, in id order. The order is that of their index; without it, a plan made on an empty table would
-- scan all runs.
WITH found AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r WHERE r.job_id = $1 ORDER BY r.fire_at, r.origin, r.seq
)
SELECT r.id, r.job_id, r.worker_id, r.token, r.attempt, r.lost_count, r.at_most_once, r.seq, r.origin, NULL::float8 AS deadline_left_s,
  NULL::jsonb AS policy
FROM sexton.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM found)) ORDER BY r.id FOR UPDATE

-- name: request_cancel
-- A run that was handed over has no worker that could stop it: it is ended a little later.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
UPDATE sexton.runs r SET cancel_requested_at = coalesce(r.cancel_requested_at, m.now),
  must_end_at = CASE WHEN r.worker_id = sexton.callbacks() THEN sexton.callback_ends_at(
    r.claimed_at, r.timeout_s, r.deadline_at, coalesce(r.cancel_requested_at, m.now), r.job_id, r.job_version, m.now) ELSE r.must_end_at END
FROM moment m WHERE r.id = ANY ($2::uuid[]) AND r.state = 'running'
RETURNING r.id, r.worker_id

-- name: recorded_outcome
-- After a report that changed nothing: was it recorded before (its reply was lost), or is the lease still valid? A sweeper and
-- the heartbeat also end attempts of a worker, as lost, timed out or released. Such a row counts as the worker's report only if
-- its status is the reported one. A `lost` row never counts. The recorded outcome may differ from the reported one:
-- ctx.transaction() may have committed a success before. $1 run, $2 job, $3 worker, $4 token, $5 an id from before the run's
-- claim, $6 the reported status
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
-- Progress and output so far of running handlers, only where the lease is still valid.
INSERT INTO sexton.live_output AS o (run_id, token, updated_at, progress, output)
SELECT x.run_id, x.token, coalesce($1::timestamptz, clock_timestamp()), x.progress, x.output
FROM jsonb_to_recordset($3::jsonb) AS x (run_id uuid, token bigint, progress jsonb, output text)
JOIN sexton.runs r ON r.id = x.run_id AND r.token = x.token AND r.worker_id = $2
ORDER BY x.run_id
ON CONFLICT (run_id) DO UPDATE SET
  token = excluded.token, updated_at = excluded.updated_at, progress = excluded.progress, output = excluded.output

-- name: forget_output
DELETE FROM sexton.live_output d WHERE d.run_id = ANY (ARRAY(
  SELECT o.run_id FROM sexton.live_output o
  WHERE NOT EXISTS (SELECT FROM sexton.runs r WHERE r.id = o.run_id AND r.token = o.token)
    AND o.updated_at < coalesce($1::timestamptz, clock_timestamp()) - interval '10 minutes'
  FOR UPDATE SKIP LOCKED))
