-- name: make_partitions
SELECT sexton.make_partitions(m.now - interval '1 day', m.now + interval '15 days') AS made
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m

-- name: past_partitions
-- Partitions that ended before the moment ($1 now, $2 seconds kept), oldest first, with the id that bounds them.
SELECT p.parent, p.child, p.high FROM (
  SELECT parent.relname AS parent, child.relname AS child,
    (regexp_match(pg_get_expr(child.relpartbound, child.oid), 'TO \(''([0-9a-f-]{36})''\)'))[1]::uuid AS high
  FROM pg_inherits i JOIN pg_class parent ON parent.oid = i.inhparent JOIN pg_class child ON child.oid = i.inhrelid
  JOIN pg_namespace n ON n.oid = parent.relnamespace
  WHERE n.nspname = 'sexton' AND parent.relname = $3
) p
WHERE p.high <= sexton.uuid7_floor(coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8))
ORDER BY p.high

-- name: needed_before
-- Whether a live run or a dead letter still needs a job below this id.
SELECT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id < $1) OR EXISTS (SELECT FROM sexton.dead_letters d WHERE d.job_id < $1) AS needed

-- name: drop_partition
SELECT sexton.drop_partition($1::text, $2::text)

-- name: expire_keys
DELETE FROM sexton.idempotency_keys k WHERE k.ctid = ANY (ARRAY(
  SELECT ctid FROM sexton.idempotency_keys WHERE expires_at < (SELECT coalesce($1::timestamptz, clock_timestamp()))
  ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: expire_unique_keys
-- Checks $4 keys after a given one ($2, $3), because a key does not show whether it is in use, and returns the last of them.
-- They are looked up one by one; otherwise a plan would scan all keys. Compare-and-set on the holder: a submission that takes
-- the key over keeps it.
WITH looked AS MATERIALIZED (
  SELECT u.tenant, u.key, u.job_id, u.holds_until FROM sexton.unique_keys u
  WHERE (u.tenant, u.key) > ($2::text, $3::bytea) ORDER BY u.tenant, u.key LIMIT $4
), idle AS MATERIALIZED (
  SELECT u.tenant, u.key, u.job_id FROM looked u
  WHERE (u.holds_until IS NULL OR u.holds_until < (SELECT coalesce($1::timestamptz, clock_timestamp())))
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = u.job_id OFFSET 0)
), locked AS MATERIALIZED (
  SELECT u.place FROM idle i CROSS JOIN LATERAL (
    SELECT k.ctid AS place FROM sexton.unique_keys k WHERE k.tenant = i.tenant AND k.key = i.key AND k.job_id = i.job_id
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) u
), gone AS (
  DELETE FROM sexton.unique_keys u WHERE u.ctid = ANY (ARRAY(SELECT place FROM locked))
)
SELECT l.tenant, l.key FROM looked l ORDER BY l.tenant DESC, l.key DESC LIMIT 1
