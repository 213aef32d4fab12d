-- name: server
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, pg_is_in_recovery() AS is_replica, current_setting('server_version_num')::int AS version,
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS connection_count,
  (SELECT count(*)::int FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS sync_standby_count

-- name: settings
-- The settings of our sessions: they include those of the role and the database, unless our own sessions change them.
SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])

-- name: transactions
-- Open for longer than $2 seconds: VACUUM cannot remove rows that were deleted since they began.
SELECT a.pid, a.application_name, a.state, extract(epoch FROM m.now - a.xact_start)::float8 AS age_s
FROM pg_stat_activity a, (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m
WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND a.xact_start < m.now - make_interval(secs => $2::float8)
ORDER BY a.xact_start LIMIT 5

-- name: prepared_transactions
SELECT p.gid, extract(epoch FROM m.now - p.prepared)::float8 AS age_s
FROM pg_prepared_xacts p, (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m
WHERE p.prepared < m.now - make_interval(secs => $2::float8)
ORDER BY p.prepared LIMIT 5

-- name: slots
SELECT slot_name::text AS name, active, greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0)) AS xmin_age
FROM pg_replication_slots ORDER BY slot_name

-- name: tables
SELECT c.relname::text AS name, coalesce(s.n_live_tup, 0) AS live_count, coalesce(s.n_dead_tup, 0) AS dead_count,
  coalesce('autovacuum_enabled=false' = ANY(c.reloptions) OR 'autovacuum_enabled=off' = ANY(c.reloptions), false) AS is_never_vacuumed
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE n.nspname = 'sexton' AND c.relkind = 'r' ORDER BY c.relname

-- name: partitions
-- For how many days ahead each partitioned table has partitions. A bound is the smallest UUIDv7 of its instant.
SELECT p.parent, extract(epoch FROM max(to_timestamp(('x' || left(replace(p.high, '-', ''), 12))::bit(48)::bigint / 1000.0)) - m.now)::float8
  / 86400 AS days_ahead
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m, (
  SELECT parent.relname::text AS parent,
    (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'TO \(''([0-9a-f-]{36})''\)'))[1] AS high
  FROM pg_inherits i JOIN pg_class parent ON parent.oid = i.inhparent JOIN pg_class child ON child.oid = i.inhrelid
  JOIN pg_namespace n ON n.oid = parent.relnamespace
  WHERE n.nspname = 'sexton' AND parent.relkind = 'p'
) p
WHERE p.high IS NOT NULL GROUP BY p.parent, m.now ORDER BY p.parent

-- name: home
SELECT c.system_identifier <> s.system_identifier OR c.database_oid <> d.oid AS is_foreign
FROM sexton.cluster c, pg_control_system() s, pg_database d WHERE d.datname = current_database()

-- name: last_heartbeats
-- Seconds since the last heartbeat of each scheduler, and of each worker that was not declared dead; and which are alive.
SELECT b.kind, b.queues, extract(epoch FROM m.now - b.beat_at)::float8 AS silent_s, sexton.is_alive(b.beat_at, NULL, b.lease_s, m.now) AS is_alive
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m, (
  SELECT 'node' AS kind, '{}'::text[] AS queues, n.beat_at, sexton.node_lease_s() AS lease_s FROM sexton.nodes n
  UNION ALL
  SELECT 'worker', w.queues, w.beat_at, coalesce(w.lease_s, w.beat_within_s) FROM sexton.workers w WHERE w.lost_at IS NULL
) b

-- name: ready_queues
-- One index probe per queue with ready runs, however many there are.
WITH RECURSIVE q AS (
  (SELECT queue FROM sexton.runs WHERE state = 'ready' ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
  FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL LIMIT 1000

-- name: tzdata
SELECT max(version) AS version FROM sexton.tzdata
