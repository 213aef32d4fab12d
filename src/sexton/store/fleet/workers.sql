-- name: enlist
INSERT INTO sexton.workers (id, name, queues, tasks, concurrency, started_at, beat_at, beat_within_s, process_tasks, process_slots, quarantine,
  parent_id, batch_tasks, batch_slots)
SELECT $2, $3, $4, $5, $6, m.now, m.now, $7::float8, $8::text[], $9::int, $10, $11, $12::text[], $13::int
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m
ON CONFLICT (id) DO NOTHING -- the reply to the first try was lost

-- name: register_tasks
INSERT INTO sexton.tasks AS t (name, options, seen_at)
SELECT x.name, x.options, coalesce($1::timestamptz, clock_timestamp())
FROM jsonb_to_recordset($2::jsonb) AS x (name text, options jsonb) ORDER BY x.name
ON CONFLICT (name) DO UPDATE SET options = excluded.options, seen_at = excluded.seen_at
WHERE t.options <> excluded.options OR t.seen_at < excluded.seen_at - interval '1 hour'

-- name: beat
-- One row per worker, not per run; the result is the list of runs leased to it, of these ($8) or of all (null). No row at all: it was
-- declared dead.
-- It also checks whether there is work: ready runs in the worker's queues ($6), and runs that no scheduler promoted, planned or
-- admitted for $7 seconds (rule "any node does overdue work"). So an idle worker needs no other query. $7 null: the worker is busy,
-- and no check is made. Suspects that wait for a worker in quarantine are always looked for, in the queues and tasks that it enlisted with.
-- $11: whether the worker announces the session of this statement, $12 and $13 its own end of the connection.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), alive AS (
  UPDATE sexton.workers w SET beat = w.beat + 1, beat_at = (SELECT now FROM moment), running_count = $3,
    draining = $4, refused_count = $5, process_running_count = $9::int, lacks = $10::text[], batch_running_count = $14::int,
    session = CASE WHEN $11::boolean THEN sexton.own_session($12::text::inet, $13::int) END, held_at_loss = NULL
  WHERE w.id = $2 AND w.lost_at IS NULL
  RETURNING w.id, w.queues, w.tasks, w.session
), suspects AS MATERIALIZED (
  SELECT sexton.count_suspects(a.queues, a.tasks, 1, m.now) > 0 AS wait FROM alive a, moment m
)
SELECT r.id, r.job_id, r.token, r.cancel_requested_at IS NOT NULL AS cancel_requested, r.at_most_once,
  $7::float8 IS NOT NULL AND EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'ready' AND o.queue = ANY ($6::text[])) AS is_ready,
  $7 IS NOT NULL AND (
    EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'waiting' AND o.due_at <= (SELECT now - make_interval(secs => $7) FROM moment))
    OR EXISTS (SELECT FROM sexton.jobs_recurring j WHERE j.plan_at <= (SELECT now - make_interval(secs => $7) FROM moment))
    OR EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'blocked')
    OR EXISTS (SELECT FROM sexton.runs o WHERE o.state = 'parked')) AS is_overdue,
  (SELECT wait FROM suspects) AS suspects_wait, alive.session IS NOT NULL AS is_announced
FROM alive LEFT JOIN LATERAL (
  SELECT h.id, h.job_id, h.token, h.cancel_requested_at, h.at_most_once FROM sexton.runs h
  WHERE $8::uuid[] IS NULL AND h.worker_id = alive.id AND h.state = 'running'
  UNION ALL
  SELECT h.id, h.job_id, h.token, h.cancel_requested_at, h.at_most_once FROM sexton.runs h
  WHERE h.id = ANY ($8::uuid[]) AND h.worker_id = alive.id AND h.state = 'running'
) r ON true
ORDER BY r.id  -- the worker acts in this order, also where it draws the delay of a retry

-- name: is_elsewhere
-- Whether another live worker of a run's queue knows its task, and has not said that it lacks this. $1 now, $2 run, $3 what
SELECT EXISTS (
  SELECT FROM sexton.runs r JOIN sexton.workers w ON r.queue = ANY (w.queues) AND r.task = ANY (w.tasks) AND w.id <> r.worker_id
  WHERE r.id = $2 AND NOT w.draining AND NOT w.quarantine AND ($3::text = ANY (w.lacks)) IS NOT TRUE
    AND sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), coalesce($1::timestamptz, clock_timestamp()))
) AS is_elsewhere

-- name: leased
-- All runs leased to a worker, as in `beat`, without the heartbeat.
SELECT r.id, r.job_id, r.token, r.cancel_requested_at IS NOT NULL AS cancel_requested, r.at_most_once
FROM sexton.runs r WHERE r.worker_id = $1 AND r.state = 'running' ORDER BY r.id

-- name: leave
DELETE FROM sexton.workers w WHERE w.id = $1 AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')

-- name: survey
-- One query for everything a sweeper or a planner might have to do; nearly always there is nothing. $1 now, $2 the cluster's lease
-- (s), $3 whether to scan all running runs as well, $4 whether to look which of the announced sessions have ended,
-- $5 and $6 the caller's own end of the connection, $7 its session at the last look
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
SELECT
  ARRAY(SELECT id FROM sexton.workers WHERE lost_at IS NULL ORDER BY id) AS worker_ids,
  ARRAY(SELECT beat FROM sexton.workers WHERE lost_at IS NULL ORDER BY id) AS beats,
  ARRAY(SELECT lease_s FROM sexton.workers WHERE lost_at IS NULL ORDER BY id) AS leases_s,
  CASE WHEN $4::boolean THEN sexton.own_session($5::text::inet, $6::int) END AS own_session,
  $7::text IS NOT NULL AND NOT sexton.has_ended($7) AS own_stayed,
  ARRAY(SELECT w.id FROM sexton.workers w WHERE $4 AND w.lost_at IS NULL AND w.session IS NOT NULL ORDER BY w.id) AS announced_ids,
  ARRAY(SELECT w.session FROM sexton.workers w WHERE $4 AND w.lost_at IS NULL AND w.session IS NOT NULL ORDER BY w.id) AS sessions,
  ARRAY(SELECT sexton.has_ended(w.session) FROM sexton.workers w
        WHERE $4 AND w.lost_at IS NULL AND w.session IS NOT NULL ORDER BY w.id) AS have_ended,
  ARRAY(SELECT w.parent_id FROM sexton.workers w WHERE $4 AND w.lost_at IS NULL AND w.session IS NOT NULL ORDER BY w.id) AS parent_ids,
  EXISTS (SELECT FROM sexton.workers w WHERE w.lost_at IS NULL AND w.running_count > 0)
  OR ($3::boolean AND EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'running')) AS running,
  $3 AND EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'running' AND r.worker_id <> sexton.callbacks() AND NOT EXISTS (
    SELECT FROM sexton.workers w WHERE w.id = r.worker_id
      AND (w.lost_at IS NULL OR w.lost_at + make_interval(secs => sexton.kept_s(r.lease_s, r.at_most_once, coalesce(w.lease_s, $2::float8), w.lease_left_s))
           > (SELECT now FROM moment)))) AS abandoned,
  $3 AND EXISTS (SELECT FROM sexton.runs r WHERE r.state = 'running' AND r.must_end_at <= (SELECT now FROM moment)) AS overrunning,
  EXISTS (SELECT FROM sexton.runs r
          WHERE r.state <> 'running' AND (r.start_by IS NOT NULL OR r.deadline_at IS NOT NULL)
            AND least(r.start_by, r.deadline_at) <= (SELECT now FROM moment)) AS expired,
  EXISTS (SELECT FROM sexton.jobs_recurring j WHERE j.plan_at <= (SELECT now FROM moment))
  OR EXISTS (SELECT FROM sexton.runs r
             WHERE r.state = 'waiting' AND r.overlap > 0 AND r.token = 0 AND r.origin = 'schedule'
               AND r.due_at <= (SELECT now - sexton.patience() FROM moment)) AS to_plan

-- name: declare_lost
-- Compare-and-set: a worker that has sent a heartbeat since then is alive. How many runs it held is counted here, because the runs are
-- ended in batches; or by the worker, before it gave back all but the last ones (`count_held`). It was lost with its parent if that has sent no heartbeat in the second half of the silence, or if its session has
-- ended as well. `lease_left_s`: not null if only the session has ended. Then it must not be back now, and the worker must hold no run that it
-- would keep (`sexton.kept_s`): it may live, and no beat of a worker that was declared lost is answered.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), silent AS MATERIALIZED (
  SELECT o.id, x.lease_left_s FROM jsonb_to_recordset($2::jsonb) AS x (id uuid, beat bigint, lease_left_s real) CROSS JOIN LATERAL (
    SELECT k.id FROM sexton.workers k WHERE k.id = x.id AND k.beat = x.beat AND k.lost_at IS NULL
      AND (x.lease_left_s IS NULL OR sexton.has_ended(k.session) AND NOT EXISTS (
        SELECT FROM sexton.runs r WHERE r.worker_id = k.id AND r.state = 'running' AND (r.at_most_once OR r.lease_s IS NOT NULL)))
    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) o
)
UPDATE sexton.workers w SET lost_at = m.now,
  held_at_loss = greatest(w.held_at_loss, (SELECT count(*) FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')),
  lost_with_parent = w.parent_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM sexton.workers p WHERE p.id = w.parent_id AND p.lost_at IS NULL AND CASE
      WHEN s.lease_left_s IS NULL OR p.session IS NULL THEN p.beat_at > w.beat_at + (m.now - w.beat_at) / 2
      ELSE NOT sexton.has_ended(p.session) END),
  lease_left_s = s.lease_left_s, lost_reason = CASE WHEN s.lease_left_s IS NOT NULL THEN 'its sessions ended' END
FROM moment m, silent s WHERE w.id = s.id
RETURNING w.id

-- name: declare_ended
-- $1 now, $2 worker, $3 what its parent saw, $4 whether its run may be innocent though it was alone
UPDATE sexton.workers w SET lost_at = coalesce($1::timestamptz, clock_timestamp()), lost_reason = $3::text, lost_with_parent = $4::boolean,
  held_at_loss = greatest(w.held_at_loss, (SELECT count(*) FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running'))
WHERE w.id = $2 AND w.lost_at IS NULL
RETURNING w.id

-- name: count_held
-- The worker is about to give back runs, because its event loop is blocked: what is left with it is not alone if it is lost. Until it beats again.
UPDATE sexton.workers w SET held_at_loss =
  greatest(w.held_at_loss, (SELECT count(*) FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running'))
WHERE w.id = $1 AND w.lost_at IS NULL

-- name: quarantine_turn
-- How many more workers in quarantine the waiting suspects could use (a suspect with a company of n is one n-th of a group; those that hold
-- nothing are there already), and how many workers with the same queues and tasks are to start a child before this one: those that are
-- alive, have a smaller id, and have no child. $1 now, $2 worker, $3 queues, $4 tasks
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), alive AS MATERIALIZED (
  SELECT w.id, w.queues, w.tasks, w.quarantine, w.parent_id FROM sexton.workers w, moment m
  WHERE NOT w.draining AND w.lease_s IS NULL AND sexton.is_alive(w.beat_at, w.lost_at, w.beat_within_s, m.now)
), idle AS MATERIALIZED (
  SELECT count(*)::int AS count FROM alive a
  WHERE a.quarantine AND a.queues && $3::text[] AND a.tasks && $4::text[]
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.worker_id = a.id AND r.state = 'running')
)
SELECT CASE WHEN sexton.count_suspects($3, $4, 1, m.now) = 0 THEN 0 ELSE (
    SELECT coalesce(ceil(sum(1.0 / s.company)), 0)::int - i.count FROM (
      SELECT r.company FROM unnest($3) AS q (name) CROSS JOIN LATERAL (
        SELECT o.company FROM sexton.runs o WHERE o.state = 'quarantined' AND o.queue = q.name AND o.due_at <= m.now AND o.task = ANY ($4)
        ORDER BY o.queue, o.company DESC, o.due_at, o.id LIMIT 1000) r) s) END AS wanted_count,
  (SELECT count(*)::int FROM alive o, alive own
   WHERE own.id = $2 AND o.id < own.id AND NOT o.quarantine AND o.queues = own.queues AND o.tasks = own.tasks
     AND NOT EXISTS (SELECT FROM alive c WHERE c.parent_id = o.id)) AS ahead_count
FROM idle i, moment m

-- name: is_lost
SELECT EXISTS (SELECT FROM sexton.workers w WHERE w.id = $1 AND w.lost_at IS NOT NULL) AS is_lost

-- name: workers
SELECT w.id, w.name, w.queues, w.tasks, w.concurrency, w.started_at, w.beat_at, w.lost_at, w.draining, w.running_count, w.refused_count,
  sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), coalesce($1::timestamptz, clock_timestamp())) AS is_alive,
  w.process_slots, w.process_running_count, coalesce(w.lacks, '{}') AS lacks, w.quarantine, w.batch_slots, w.batch_running_count
FROM sexton.workers w ORDER BY w.started_at, w.id

-- name: forget_workers
DELETE FROM sexton.workers d WHERE d.id = ANY (ARRAY(
  SELECT w.id FROM sexton.workers w
  WHERE w.lost_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 hour'
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.worker_id = w.id AND r.state = 'running')
  FOR UPDATE SKIP LOCKED))

-- name: node_beat
-- Reports that this scheduler is alive and what it leads. Returns all live ones: those with a recent heartbeat whose session, if they
-- have one, still exists. If another process got the same pid, the node only seems alive until its heartbeat is old.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), mine AS (
  INSERT INTO sexton.nodes AS n (id, name, started_at, beat_at, partitions, session)
  SELECT $2, $3, m.now, m.now, $4::smallint[], $5 FROM moment m
  ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at, partitions = excluded.partitions, session = excluded.session
  RETURNING n.id
)
SELECT id FROM mine
UNION
SELECT n.id FROM sexton.nodes n, moment m
WHERE sexton.is_alive(n.beat_at, NULL, sexton.node_lease_s(), m.now)
  AND (n.session IS NULL OR EXISTS (SELECT FROM pg_stat_get_activity(n.session)))

-- name: node_leave
DELETE FROM sexton.nodes WHERE id = $1

-- name: nodes
SELECT n.id, n.name, n.started_at, n.beat_at, n.partitions,
  sexton.is_alive(n.beat_at, NULL, sexton.node_lease_s(), coalesce($1::timestamptz, clock_timestamp())) AS is_alive
FROM sexton.nodes n ORDER BY n.started_at, n.id

-- name: forget_nodes
DELETE FROM sexton.nodes d WHERE d.id = ANY (ARRAY(
  SELECT n.id FROM sexton.nodes n WHERE n.beat_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 hour' FOR UPDATE SKIP LOCKED))
