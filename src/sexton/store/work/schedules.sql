-- name: submit
SELECT id, created, changed FROM sexton.submit_schedules($1::jsonb, $2::timestamptz)

-- name: to_plan
-- Schedules whose next fires must be written, most urgent first, and when the next of them is ($1 now, $2 partitions, $3 at
-- most, $4 only schedules overdue by this many seconds, $5 the release of our time zone data). Rule "one instant, one fire": a
-- planner whose data are older than those in the database waits $6 seconds, so that a planner with the newer data comes first.
-- $7 schedules that another session has locked: a thousand of them must not hide the next one.
SELECT j.id, j.version, j.tenant, j.name, j.schedule, j.recurrence, j.plan_cursor_at, j.fire_count, j.submitted_at, moment.now, j.tzdata
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) moment CROSS JOIN LATERAL (
  SELECT * FROM sexton.jobs_recurring k
  WHERE k.plan_at <= moment.now
      - make_interval(secs => greatest($4::float8, CASE WHEN (SELECT max(version) FROM sexton.tzdata) > $5::text THEN $6::float8 ELSE 0 END))
    AND sexton.partition_of(k.id) = ANY ($2::smallint[]) AND k.id <> ALL ($7::uuid[])
  ORDER BY k.plan_at, k.id LIMIT $3
) j

-- name: of_ids
-- The same for schedules just written, in any partition. By key: a condition on `plan_at` could make a plan made on an empty
-- table scan all schedules to plan. $1 now, $2 jobs, $3 the release of our time zone data, if older data must leave planning to
-- newer
SELECT j.id, j.version, j.tenant, j.name, j.schedule, j.recurrence, j.plan_cursor_at, j.fire_count, j.submitted_at, moment.now, j.tzdata
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) moment, (
  SELECT * FROM sexton.jobs_recurring k WHERE k.id = ANY ($2::uuid[]) OFFSET 0
) j
WHERE j.plan_at IS NOT NULL AND ((SELECT max(version) FROM sexton.tzdata) > $3::text) IS NOT TRUE

-- name: ensure_ledger
SELECT sexton.ensure_partitions(coalesce($1::timestamptz, clock_timestamp()))

-- name: plan
-- Rule "plan by compare-and-set": only a planner that read the current cursor moves it, and the move feeds the runs and the
-- ledger. The same holds for the release of the time zone data (rule "one instant, one fire"): a schedule that newer data
-- replanned meanwhile does not change. $1 now, $3 the release in use, $2 documents: id, version, cursor_at and tzdata (as
-- read), new_cursor_at, plan_at, fire_count, over, schedule (at the first time), overlap, fires [{fire_at, due_at}], missed
-- [{first_at, last_at, count, status, reason}]. Rule "never wait inside a batch": a schedule that another session has locked is
-- left for the next pass, and the answer names it.
WITH moment AS MATERIALIZED (
  SELECT at AS now, (extract(epoch FROM at) * 1000000)::bigint AS micros FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) m
), given AS MATERIALIZED (
  -- It is over once its last fire is promoted: until then it may be paused and edited, and its name is taken.
  SELECT x.*, x.over AND x.fires = '[]' AND NOT EXISTS (
    SELECT FROM sexton.runs r WHERE r.job_id = x.id AND r.state = 'waiting' AND r.token = 0 AND r.origin = 'schedule') AS done
  FROM jsonb_to_recordset($2::jsonb) AS x (
    id uuid, version int, cursor_at timestamptz, tzdata text, new_cursor_at timestamptz, plan_at timestamptz, fire_count bigint, over boolean,
    schedule jsonb, overlap smallint, fires jsonb, missed jsonb)
), free AS MATERIALIZED (
  SELECT j.id FROM sexton.jobs_recurring j WHERE j.id = ANY (ARRAY(SELECT given.id FROM given)) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED
), planned AS (
  UPDATE sexton.jobs_recurring j SET
    plan_cursor_at = g.new_cursor_at, plan_at = CASE WHEN NOT g.done THEN g.plan_at END, fire_count = g.fire_count, tzdata = $3::text,
    schedule = coalesce(nullif(g.schedule, 'null'), j.schedule), over_at = CASE WHEN g.done THEN moment.now END, over_as = CASE WHEN g.done THEN 'completed' END
  FROM given g, moment
  WHERE j.id = ANY (ARRAY(SELECT free.id FROM free)) AND j.id = g.id AND j.version = g.version
    AND j.plan_cursor_at IS NOT DISTINCT FROM g.cursor_at AND j.tzdata IS NOT DISTINCT FROM g.tzdata AND coalesce(j.plan_at, 'infinity') < 'infinity'  -- active; see of_ids
  RETURNING j.id, j.version, j.task, j.tenant, j.queue, j.lane, j.timeout_s, j.at_most_once, j.policy, g.fires, g.missed, g.overlap,
    sexton.limit_key_of(j.policy, j.payload) AS limit_key
), fired AS MATERIALIZED (
  SELECT sexton.uuid7(moment.micros + row_number() OVER (ORDER BY f.due_at, f.fire_at)) AS run_id, p.*, f.fire_at, f.due_at
  FROM moment, planned p CROSS JOIN LATERAL jsonb_to_recordset(p.fires) AS f (fire_at timestamptz, due_at timestamptz)
), placed AS (
  INSERT INTO sexton.runs (id, job_id, fire_at, due_at, start_by, deadline_at, timeout_s, lease_s, lane, partition, at_most_once, state,
                           origin, queue, tenant, task, job_version, overlap, limit_key)
  SELECT f.run_id, f.id, f.fire_at, f.due_at,
    f.due_at + make_interval(secs => (f.policy->>'start_within_s')::float8), f.due_at + make_interval(secs => (f.policy->>'deadline_s')::float8),
    f.timeout_s, (f.policy->>'lease_s')::real, f.lane, sexton.partition_of(f.id), f.at_most_once, 'waiting', 'schedule', f.queue, f.tenant,
    f.task, f.version, f.overlap, f.limit_key
  FROM fired f ORDER BY f.due_at, f.id
  ON CONFLICT (job_id, fire_at, origin, seq) DO NOTHING
  RETURNING due_at
), ledger AS (
  INSERT INTO sexton.executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane, origin, status,
                                 queue, tenant, task, reason, result)
  SELECT sexton.uuid7(moment.micros + row_number() OVER ()), p.id, sexton.uuid7(moment.micros), m.first_at, m.first_at, moment.now, 0, p.version, 0,
    0, p.lane, 'schedule', m.status, p.queue, p.tenant, p.task, m.reason,
    jsonb_build_object('first', m.first_at, 'last', m.last_at, 'count', m.count)
  FROM moment, planned p
  CROSS JOIN LATERAL jsonb_to_recordset(p.missed) AS m (first_at timestamptz, last_at timestamptz, count bigint, status text, reason text)
)
SELECT p.id, (SELECT extract(epoch FROM min(placed.due_at) - max(moment.now))::float8 FROM placed, moment) AS next_due_s, false AS is_locked FROM planned p
UNION ALL
SELECT locked.id, NULL, true FROM (SELECT id FROM given EXCEPT SELECT id FROM free) locked

-- name: lock_partitions
-- Per partition, one promoter at a time decides which runs may run together; it holds the lock until the transaction ends, with
-- or without a pooler. A promoter that finds the lock taken leaves the partition to the holder, so none waits. A holder that
-- hangs in the middle delays its partitions for five seconds. The lock is a row, because any role can take an advisory lock:
-- rule "no lock that others may take". The advisory lock beside it is the one that the release before takes.
WITH mine AS MATERIALIZED (
  SELECT l.n AS partition, set_config('idle_in_transaction_session_timeout', '5s', true) AS within FROM sexton.locks l
  WHERE l.what = 'promote' AND l.n = ANY ($1::smallint[]) ORDER BY l.n FOR UPDATE SKIP LOCKED
), tried AS MATERIALIZED (
  SELECT m.partition, m.within, pg_try_advisory_xact_lock(7307, 100 + m.partition) AS is_free FROM mine m
)
SELECT t.partition, t.within FROM tried t WHERE t.is_free OR NOT sexton.held_by_service(7307, 100 + t.partition)

-- name: promote_alone
-- Due runs whose job has no other run that is live, blocked or due: nothing to decide. Call it with the partitions locked
-- (rule "lock, then decide"). Runs that are too late are left to `recall`. $1 now, $2 partitions, $3 at most, $4 jobs to leave out
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), due AS MATERIALIZED (
  SELECT r.id, r.job_id FROM sexton.runs r
  WHERE r.state = 'waiting' AND r.overlap > 0 AND r.token = 0 AND r.partition = ANY ($2::smallint[]) AND r.due_at <= (SELECT now FROM moment)
    AND (r.origin <> 'schedule' OR r.due_at > (SELECT now - sexton.patience() FROM moment)) AND r.job_id <> ALL ($4::uuid[])
  ORDER BY r.due_at, r.partition, r.id LIMIT $3 FOR UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
  SELECT d.id, d.job_id, EXISTS (
    SELECT FROM sexton.runs o
    WHERE o.job_id = d.job_id AND o.id <> d.id
      AND (o.state <> 'waiting' OR o.token > 0 OR o.due_at <= (SELECT now FROM moment))) AS crowded
  FROM due d
), promoted AS (
  UPDATE sexton.runs r SET state = 'ready' WHERE r.id = ANY (ARRAY(SELECT j.id FROM judged j WHERE NOT j.crowded))
  RETURNING r.queue
)
SELECT (SELECT count(*) FROM due)::int AS due_count, (SELECT count(*) FROM promoted)::int AS promoted_count,
  ARRAY(SELECT DISTINCT queue FROM promoted) AS queues, ARRAY(SELECT DISTINCT j.job_id FROM judged j WHERE j.crowded) AS crowded

-- name: released
-- Jobs with a blocked run that may run now: rule "look again every pass". The offset keeps a plan from hashing all live runs. A
-- run that must run alone waits for every other run that must run alone: in a job that allows several, those are the runs of
-- its backfill. $1 partitions, $2 at most, $3 jobs to leave out, because another session has locked a run of theirs
SELECT DISTINCT b.job_id FROM (
  SELECT r.job_id, r.overlap, r.partition FROM sexton.runs r WHERE r.state = 'blocked' ORDER BY r.job_id, r.due_at
) b
WHERE b.partition = ANY ($1::smallint[]) AND b.job_id <> ALL ($3::uuid[]) AND (b.overlap = 2 OR NOT EXISTS (
  SELECT FROM sexton.runs o WHERE o.job_id = b.job_id AND o.overlap = 1 AND (o.state IN ('ready', 'parked', 'running') OR o.token > 0) OFFSET 0))
LIMIT $2

-- name: competing_runs
-- Locks all live, blocked and due runs of some jobs, in order of due time. Jobs with a run that another session has locked (to
-- claim, end or edit it) are left out until the next pass, so that no session waits here. Jobs with a fire that is too late are
-- left out as well: `recall` comes first, otherwise catch-up would find a later one already decided. $1 now, $2 jobs
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), seen AS MATERIALIZED (
  SELECT r.id, r.job_id FROM sexton.runs r, moment
  WHERE r.job_id = ANY ($2::uuid[]) AND (r.state <> 'waiting' OR r.token > 0 OR r.due_at <= moment.now)
), held AS MATERIALIZED (
  SELECT r.* FROM sexton.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM seen)) ORDER BY r.id FOR UPDATE SKIP LOCKED
)
SELECT h.job_id, h.id, h.state, h.token, h.fire_at, h.due_at, h.queue, h.origin, h.overlap, j.recurrence
FROM held h JOIN sexton.jobs_recurring j ON j.id = h.job_id
WHERE h.job_id <> ALL (ARRAY(
  SELECT s.job_id FROM moment, seen s LEFT JOIN held o ON o.id = s.id
  WHERE o.id IS NULL OR (o.state = 'waiting' AND o.token = 0 AND o.origin = 'schedule' AND o.due_at <= moment.now - sexton.patience())))
ORDER BY h.job_id, h.due_at, h.fire_at, h.id

-- name: admit
UPDATE sexton.runs r SET state = 'ready' WHERE r.id = ANY ($1::uuid[]) AND r.state IN ('waiting', 'blocked') RETURNING r.queue

-- name: block
UPDATE sexton.runs r SET state = 'blocked' WHERE r.id = ANY ($1::uuid[]) AND r.state = 'waiting'

-- name: lock_job
SELECT j.id, j.version, j.paused_at, j.over_at, j.over_as, j.plan_cursor_at, j.schedule, j.recurrence, j.tenant, j.name, j.submitted_at, j.tzdata
FROM sexton.jobs_recurring j WHERE j.id = $1 FOR UPDATE

-- name: hold_runs
-- Of these jobs, those whose runs that have not started could all be locked. $1 jobs, $2 states of the runs
SELECT unnest(sexton.hold_runs($1::uuid[], $2::text[])) AS id

-- name: unplan
-- $1 now, $2 job, $3 the status in the ledger of fires that will not be planned again
SELECT cursor_at, removed_count, begun_count
FROM sexton.unplan(ARRAY[$2::uuid], coalesce($1::timestamptz, clock_timestamp()), told => $3::text)

-- name: pause
-- A job that was never planned stays so: the fires since its submission are decided when it is resumed.
UPDATE sexton.jobs_recurring j SET plan_at = NULL, plan_cursor_at = CASE WHEN j.plan_cursor_at IS NOT NULL THEN $3::timestamptz END, fire_count = greatest(j.fire_count - $4::int, 0),
  paused_at = coalesce($1::timestamptz, clock_timestamp()), paused_by = $5::text, note = $6::text, resume_at = $7::timestamptz
WHERE j.id = $2

-- name: note
UPDATE sexton.jobs_recurring j SET paused_by = coalesce($2::text, j.paused_by), note = $3::text, resume_at = $4::timestamptz WHERE j.id = $1

-- name: resume
-- The fires of the pause are decided where the schedule is planned again.
UPDATE sexton.jobs_recurring j SET plan_at = coalesce($1::timestamptz, clock_timestamp()), paused_at = NULL, paused_by = NULL, note = NULL,
  resume_at = NULL
WHERE j.id = $2

-- name: keeps_rule
-- $1 job, $2 the document
SELECT sexton.keeps_rule(j, document) AS keeps_rule FROM sexton.read_schedules($2::jsonb) AS document, sexton.jobs_recurring j WHERE j.id = $1

-- name: lock_named
SELECT id FROM sexton.lock_named($1::jsonb) WHERE NOT keeps_rule

-- name: revise
SELECT r.removed_count, r.begun_count
FROM sexton.read_schedules($3::jsonb) AS document, sexton.revise($2::uuid, document, coalesce($1::timestamptz, clock_timestamp())) AS r

-- name: fire_now
-- Outside its schedule, and under its overlap policy. $1 now, $2 job, $3 the payload of this run, if it is not the job's
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), placed AS (
  INSERT INTO sexton.runs (id, job_id, fire_at, due_at, start_by, deadline_at, timeout_s, lease_s, lane, partition, at_most_once, state,
                           origin, queue, tenant, task, job_version, overlap, limit_key, seq)
  SELECT sexton.uuid7((extract(epoch FROM moment.now) * 1000000)::bigint), j.id, moment.now, moment.now,
    moment.now + make_interval(secs => (j.policy->>'start_within_s')::float8), moment.now + make_interval(secs => (j.policy->>'deadline_s')::float8),
    j.timeout_s, (j.policy->>'lease_s')::real, j.lane, sexton.partition_of(j.id), j.at_most_once, 'waiting', 'now', j.queue, j.tenant, j.task,
    j.version, sexton.overlap_of(j.recurrence), sexton.limit_key_of(j.policy, coalesce($3::jsonb, j.payload)),
    (SELECT coalesce(max(r.seq) + 1, 0) FROM sexton.runs r WHERE r.job_id = j.id AND r.fire_at = moment.now AND r.origin = 'now')
  FROM sexton.jobs_recurring j, moment WHERE j.id = $2
  RETURNING id, job_id
), given AS (
  INSERT INTO sexton.run_payloads (run_id, job_id, payload) SELECT id, job_id, $3::jsonb FROM placed WHERE $3 IS NOT NULL
)
SELECT id FROM placed

-- name: pause_again
-- After its rule was replaced: the pause, its reason and its end stay.
UPDATE sexton.jobs_recurring j SET plan_at = NULL, plan_cursor_at = CASE WHEN j.plan_cursor_at IS NOT NULL THEN $2::timestamptz END,
  fire_count = greatest(j.fire_count - $3::int, 0)
WHERE j.id = $1

-- name: wake
UPDATE sexton.jobs_recurring j SET plan_at = coalesce($1::timestamptz, clock_timestamp()) WHERE j.id = ANY ($2::uuid[])

-- name: decided
-- Up to now, the present rule has no fire that is neither written nor in history. $1 now, $2 jobs
UPDATE sexton.jobs_recurring j SET plan_cursor_at = greatest(j.plan_cursor_at, $1::timestamptz)
WHERE j.id = ANY ($2::uuid[]) AND j.plan_cursor_at IS NOT NULL

-- name: end_fires
-- $1 now, $2 job, $3 reason
SELECT sexton.end_fires($2::uuid, $3::text, coalesce($1::timestamptz, clock_timestamp())) AS ended_count

-- name: end
UPDATE sexton.jobs_recurring j SET plan_at = NULL, resume_at = NULL, over_at = coalesce($1::timestamptz, clock_timestamp()),
  over_as = $3::text, over_reason = $4::text
WHERE j.id = $2 AND j.over_at IS NULL RETURNING j.id

-- name: fail
-- Its rule cannot be read: it ends, unless it was changed meanwhile or another session has locked it or its runs. Promoted fires
-- continue. $1 now, $2 job, $3 version that was read, $4 reason
WITH free AS MATERIALIZED (
  SELECT k.id FROM sexton.jobs_recurring k WHERE k.id = $2 AND k.version = $3 AND k.over_at IS NULL FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
  UPDATE sexton.jobs_recurring j SET plan_at = NULL, resume_at = NULL, over_at = coalesce($1::timestamptz, clock_timestamp()),
    over_as = 'failed', over_reason = $4::text
  WHERE j.id = (SELECT f.id FROM free f WHERE f.id = ANY (sexton.hold_runs(ARRAY[f.id], '{waiting}'))) RETURNING j.id, j.over_at
)
SELECT sexton.end_fires(e.id, $4::text, e.over_at, '{waiting}') AS ended_count FROM ended e

-- name: postpone
-- A schedule that cannot be planned because of an unexpected error does not delay the others. $1 now, $2 job, $3 version that
-- was read
UPDATE sexton.jobs_recurring j SET plan_at = coalesce($1::timestamptz, clock_timestamp()) + interval '1 minute'
WHERE j.id = (
  SELECT k.id FROM sexton.jobs_recurring k
  WHERE k.id = $2 AND k.version = $3 AND coalesce(k.plan_at, 'infinity') < 'infinity' FOR NO KEY UPDATE SKIP LOCKED)

-- name: recall
-- $1 now, $2 partitions, $3 at most, $4 jobs to leave out
SELECT job_id, is_left FROM sexton.recall_late($2::smallint[], $3, $4::uuid[], $1::timestamptz)

-- name: due_to_resume
SELECT id FROM sexton.jobs_recurring WHERE resume_at <= (SELECT coalesce($1::timestamptz, clock_timestamp())) ORDER BY resume_at LIMIT $2
FOR NO KEY UPDATE SKIP LOCKED

-- name: lock_due_to_resume
SELECT resume_at FROM sexton.jobs_recurring
WHERE id = $2 AND over_at IS NULL AND paused_at IS NOT NULL AND resume_at <= coalesce($1::timestamptz, clock_timestamp()) FOR UPDATE SKIP LOCKED

-- name: next_resume
SELECT extract(epoch FROM resume_at - coalesce($1::timestamptz, clock_timestamp()))::float8 AS left_s
FROM sexton.jobs_recurring WHERE resume_at IS NOT NULL ORDER BY resume_at LIMIT 1

-- name: repair
-- Live schedules that no planner would plan, and how many should have been planned a minute ago, except those that another transaction has
-- locked: the planner passes over these. $1 now
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), free AS MATERIALIZED (
  SELECT k.id FROM sexton.jobs_recurring k WHERE k.plan_at IS NULL AND k.over_at IS NULL AND k.paused_at IS NULL
  FOR NO KEY UPDATE SKIP LOCKED
), forgotten AS (
  UPDATE sexton.jobs_recurring j SET plan_at = moment.now FROM moment WHERE j.id = ANY (ARRAY(SELECT id FROM free)) RETURNING j.id
)
SELECT ARRAY(SELECT id FROM forgotten) AS forgotten,
  (SELECT count(*) FROM (
     SELECT j.xmax <> '0' AND sexton.lockers(j.xmax) && ARRAY(
       SELECT l.transactionid::text FROM pg_locks l WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock') AS is_locked
     FROM sexton.jobs_recurring j, moment WHERE j.plan_at < moment.now - interval '1 minute' LIMIT 10000) late
   WHERE NOT late.is_locked)::int AS late_count

-- name: unplanned
-- The full check: schedules whose cursor is past a fire that does not exist are planned again from now, or from the last fire that was
-- decided if the clock was set back. Not those whose jitter let the fire start, and end, before its nominal time.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), free AS MATERIALIZED (
  SELECT j.id FROM sexton.jobs_recurring j, moment
  WHERE j.over_at IS NULL AND j.paused_at IS NULL AND j.plan_cursor_at > moment.now + interval '1 minute'
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = j.id AND r.origin <> 'backfill')
    AND NOT EXISTS (SELECT FROM sexton.executions e
                    WHERE e.job_id = j.id AND e.id >= sexton.uuid7_floor(moment.now - interval '1 hour') AND e.fire_at >= j.plan_cursor_at)
  FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE sexton.jobs_recurring j SET plan_at = moment.now, plan_cursor_at = greatest(moment.now, (
  SELECT max(CASE WHEN e.status IN ('missed', 'paused') THEN coalesce((e.result->>'last')::timestamptz, e.fire_at) ELSE e.fire_at END)
  FROM sexton.executions e
  WHERE e.job_id = j.id AND e.id >= sexton.uuid7_floor(moment.now - interval '1 hour') AND e.origin = 'schedule'))
FROM moment WHERE j.id = ANY (ARRAY(SELECT id FROM free)) RETURNING j.id
