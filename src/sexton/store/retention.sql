-- name: make_partitions
SELECT sexton.make_partitions(m.now - interval '1 day', m.now + interval '15 days') AS made
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m

-- name: past_partitions
-- Partitions that end before the moment ($1 now, $2 seconds kept), oldest first, with the id that bounds them.
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
DELETE FROM sexton.idempotency_keys k WHERE (k.tenant, k.key) IN (
  SELECT tenant, key FROM sexton.idempotency_keys WHERE expires_at < coalesce($1::timestamptz, clock_timestamp())
  ORDER BY expires_at LIMIT 5000 FOR UPDATE SKIP LOCKED)

-- name: expire_unique_keys
-- Compare-and-set on the holder: a submission that takes the key over meanwhile keeps it.
WITH idle AS MATERIALIZED (
  SELECT u.tenant, u.key, u.job_id FROM sexton.unique_keys u
  WHERE (u.holds_until IS NULL OR u.holds_until < coalesce($1::timestamptz, clock_timestamp()))
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = u.job_id)
  LIMIT 5000
), locked AS MATERIALIZED (
  SELECT u.tenant, u.key FROM sexton.unique_keys u JOIN idle i ON i.tenant = u.tenant AND i.key = u.key AND i.job_id = u.job_id
  ORDER BY u.tenant, u.key FOR UPDATE OF u SKIP LOCKED
)
DELETE FROM sexton.unique_keys u USING locked l WHERE u.tenant = l.tenant AND u.key = l.key
