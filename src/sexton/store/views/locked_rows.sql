-- name: sessions
-- Transactions that have written or locked something, and the sessions or prepared transactions that hold them. A role with fewer
-- rights sees neither the client nor the age of other roles. Besides, with `key_class`, the advisory locks of Sexton that the services do not
-- hold: those of roles that cannot serve, which the services go on without, and those that a role with their rights has held for long.
-- $1 now, $2 seconds
WITH m AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT l.transactionid::text AS xid, l.pid, p.gid, nullif(a.application_name, '') AS application, coalesce(a.usename, p.owner)::text AS role,
  host(a.client_addr) AS client, extract(epoch FROM m.now - coalesce(a.xact_start, p.prepared))::float8 AS age_s,
  NULL::int AS key_class, NULL::int AS key, NULL::boolean AS may_serve
FROM m, pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND coalesce(a.datname, p.database) = current_database()
UNION ALL
SELECT k.virtualtransaction, k.pid, p.gid, nullif(a.application_name, ''), coalesce(a.usename, p.owner)::text, host(a.client_addr),
  extract(epoch FROM m.now - coalesce(a.xact_start, a.state_change, p.prepared))::float8, k.classid::int, k.objid::int, r.may_serve
FROM m, pg_locks k
LEFT JOIN pg_stat_activity a ON a.pid = k.pid
LEFT JOIN pg_prepared_xacts p ON k.pid IS NULL AND k.virtualtransaction = '-1/' || p.transaction
CROSS JOIN LATERAL (
  SELECT sexton.may_serve(coalesce(a.usesysid, (SELECT o.oid FROM pg_roles o WHERE o.rolname = p.owner))) AS may_serve OFFSET 0) r
WHERE k.locktype = 'advisory' AND k.granted AND k.objsubid = 2 AND k.pid IS DISTINCT FROM pg_backend_pid()
  AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND (k.classid = 7307 AND k.objid IN (0, 2, 3, 4) OR k.classid = 7307 AND k.objid BETWEEN 100 AND 163 OR k.classid = 7308 AND k.objid <= 63)
  AND (NOT r.may_serve OR k.classid = 7307 AND k.objid NOT IN (0, 3)
       AND m.now - coalesce(a.xact_start, a.state_change, p.prepared) >= make_interval(secs => $2))
ORDER BY 2, 1, 8, 9

-- name: due
-- Rows that a service would change now, or until a later instant, and that one of these transactions ($2) holds. $1 that instant, $3 at
-- most of each kind, from those that are due first
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS until
), looked AS (
  (SELECT 'schedule' AS kind, j.name, j.id AS job_id, NULL::uuid AS run_id, j.xmax AS holder FROM sexton.jobs_recurring j, moment
   WHERE j.plan_at <= moment.until ORDER BY j.plan_at, j.id LIMIT $3)
  UNION ALL
  (SELECT 'schedule', j.name, j.id, NULL, j.xmax FROM sexton.jobs_recurring j, moment
   WHERE j.resume_at <= moment.until ORDER BY j.resume_at LIMIT $3)
  UNION ALL
  (SELECT 'run', r.task, r.job_id, r.id, r.xmax FROM sexton.runs r, moment
   WHERE r.state = 'waiting' AND r.due_at <= moment.until ORDER BY r.due_at, r.partition, r.id LIMIT $3)
  UNION ALL
  (SELECT 'run', r.task, r.job_id, r.id, r.xmax FROM sexton.runs r
   WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT $3)
  UNION ALL
  (SELECT 'run', r.task, r.job_id, r.id, r.xmax FROM sexton.runs r, moment
   WHERE r.state = 'running' AND r.must_end_at <= moment.until ORDER BY r.worker_id LIMIT $3)
  UNION ALL
  (SELECT 'run', r.task, r.job_id, r.id, r.xmax FROM sexton.runs r WHERE r.state = 'blocked' ORDER BY r.job_id, r.due_at LIMIT $3)
  UNION ALL
  (SELECT 'run', r.task, r.job_id, r.id, r.xmax FROM sexton.runs r
   WHERE r.state = 'parked' ORDER BY r.limit_key, r.due_at, r.id LIMIT $3)
  UNION ALL
  (SELECT 'limit', l.key, NULL, NULL, l.xmax FROM sexton.limits l WHERE EXISTS (
     SELECT FROM sexton.runs r WHERE r.state = 'parked' AND r.limit_key = l.key OFFSET 0) ORDER BY l.key LIMIT $3)
  UNION ALL
  (SELECT 'queue', q.name, NULL, NULL, q.xmax FROM sexton.queues q WHERE q.release_rate IS NOT NULL ORDER BY q.name LIMIT $3)
  UNION ALL
  SELECT 'lock', CASE k.what WHEN 'promote' THEN 'partition ' || k.n ELSE 'declared schedules' END, NULL, NULL, k.xmax FROM sexton.locks k
)
SELECT l.kind, l.name, l.job_id, l.run_id, x.xids FROM looked l CROSS JOIN LATERAL (SELECT sexton.lockers(l.holder) AS xids OFFSET 0) x
WHERE l.holder <> '0' AND x.xids && $2::text[]

-- name: of_job
-- The rows of one job, the limit and the queue of its runs, and for a schedule the lock of its partition. $1 job, $2 queue, $3 the key of its limit
SELECT l.kind, l.name, l.job_id, l.run_id, sexton.lockers(l.holder) AS xids FROM (
  SELECT 'schedule' AS kind, j.name, j.id AS job_id, NULL::uuid AS run_id, j.xmax AS holder FROM sexton.jobs_recurring j WHERE j.id = $1::uuid
  UNION ALL
  (SELECT 'run', r.task, r.job_id, r.id, r.xmax FROM sexton.runs r WHERE r.job_id = $1 ORDER BY r.job_id, r.fire_at, r.origin, r.seq LIMIT 20)
  UNION ALL
  SELECT 'limit', k.key, NULL, NULL, k.xmax FROM sexton.limits k WHERE k.key = $3::text
  UNION ALL
  SELECT 'queue', q.name, NULL, NULL, q.xmax FROM sexton.queues q WHERE q.name = $2::text AND q.release_rate IS NOT NULL
  UNION ALL
  SELECT 'lock', 'partition ' || o.n, NULL, NULL, o.xmax FROM sexton.locks o
  WHERE o.what = 'promote' AND o.n = sexton.partition_of($1) AND EXISTS (SELECT FROM sexton.jobs_recurring r WHERE r.id = $1)
) l WHERE l.holder <> '0'
