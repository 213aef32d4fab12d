-- name: holders
-- Sessions and prepared transactions that keep the services from a table of Sexton: they hold a lock on it that conflicts with reading or
-- writing, or a session that waits for the table waits for them in the end. It reads no table and calls no function of Sexton, because these
-- may be what is locked. Sexton's own sessions are left out, by the names in $2. $1 now
WITH RECURSIVE m AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
locks AS MATERIALIZED (
  SELECT l.pid, l.virtualtransaction, l.mode, l.granted, l.relation, c.relname::text AS name,
    l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AS is_strong
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
  WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND c.relnamespace = to_regnamespace('sexton')
), waited AS (
  SELECT w.pid, w.relation, w.name, w.mode FROM locks w WHERE NOT w.granted
), chain AS (
  SELECT w.pid FROM waited w
  UNION
  SELECT b.pid FROM chain c CROSS JOIN LATERAL unnest(pg_blocking_pids(c.pid)) AS b (pid)
), strong AS (
  SELECT s.pid, s.virtualtransaction, s.name, s.mode FROM locks s WHERE s.granted AND s.is_strong
), ends AS (
  SELECT c.pid, NULL::text, w.name, h.mode
  FROM chain c CROSS JOIN waited w LEFT JOIN locks h ON h.pid = c.pid AND h.relation = w.relation AND h.granted
  WHERE c.pid NOT IN (SELECT o.pid FROM waited o) AND cardinality(pg_blocking_pids(c.pid)) = 0 AND NOT EXISTS (SELECT FROM strong s WHERE s.pid = c.pid)
), found AS (
  SELECT f.pid, f.virtualtransaction, max(f.mode) AS mode,
    coalesce(array_agg(DISTINCT f.name) FILTER (WHERE f.mode IS NOT NULL), array_agg(DISTINCT f.name)) AS names,
    bool_or(f.mode = 'AccessExclusiveLock') AS stops_reading
  FROM (TABLE strong UNION ALL TABLE ends) AS f GROUP BY f.pid, f.virtualtransaction
)
SELECT coalesce(f.virtualtransaction, a.pid::text) AS xid, f.pid, p.gid, nullif(a.application_name, '') AS application,
  coalesce(a.usename, p.owner)::text AS role, host(a.client_addr) AS client,
  extract(epoch FROM m.now - coalesce(a.xact_start, a.state_change, p.prepared))::float8 AS age_s, f.names, f.mode,
  f.stops_reading OR EXISTS (SELECT FROM waited w WHERE w.mode = 'AccessExclusiveLock') AS stops_reading
FROM m, found f
LEFT JOIN pg_stat_activity a ON a.pid = f.pid
LEFT JOIN pg_prepared_xacts p ON f.pid IS NULL AND f.virtualtransaction = '-1/' || p.transaction
WHERE f.pid IS DISTINCT FROM pg_backend_pid() AND coalesce(a.application_name, '') <> ALL ($2::text[])
  AND (a.pid IS NOT NULL OR p.gid IS NOT NULL)
ORDER BY 7 DESC NULLS LAST, 2
