-- name: get
SELECT t.name, t.weight, t.running_max, t.waiting_max, t.submit_rate::float8, t.submit_burst, t.jitter_s::float8, t.paused_at, t.paused_by, t.note, t.updated_at
FROM sexton.tenants t WHERE t.name = ANY ($1::text[]) ORDER BY t.name

-- name: list
SELECT t.name, t.weight, t.running_max, t.waiting_max, t.submit_rate::float8, t.submit_burst, t.jitter_s::float8, t.paused_at, t.paused_by, t.note, t.updated_at
FROM sexton.tenants t WHERE t.name > $1::text ORDER BY t.name LIMIT $2

-- name: lock
-- Rule "lock, then decide": the first caller creates the row. $1 now, $2 name
INSERT INTO sexton.tenants AS t (name, updated_at) VALUES ($2::text, coalesce($1::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET updated_at = excluded.updated_at
RETURNING t.waiting_max

-- name: put
-- A bucket keeps its tokens, so that a change of its rate causes no burst. $1 now, $2 name, $3 weight, $4 running, $5 waiting,
-- $6 rate, $7 burst, $8 jitter (s)
UPDATE sexton.tenants t SET weight = $3::int, running_max = $4::int, waiting_max = $5::int, submit_rate = $6::float8, submit_burst = $7::int,
  jitter_s = $8::float8, updated_at = m.now, counted_at = '-infinity',
  bucket_at = CASE WHEN t.bucket_at = '-infinity' OR t.submit_rate IS NULL OR $6 IS NULL THEN '-infinity'
    ELSE m.now - make_interval(secs => least($7, t.submit_burst, greatest(0, extract(epoch FROM m.now - t.bucket_at)::float8 * t.submit_rate)) / $6) END
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m WHERE t.name = $2::text

-- name: count_waiting
-- Runs that already wait count as well, up to the limit: above it the tenant is full. Scans all runs, once. $1 name, $2 at most
WITH found AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r WHERE r.tenant = $1::text AND r.state <> 'running' AND NOT r.counted LIMIT $2
), held AS MATERIALIZED (
  SELECT r.id FROM sexton.runs r WHERE r.id = ANY (ARRAY(SELECT id FROM found)) AND r.state <> 'running' ORDER BY r.id FOR UPDATE SKIP LOCKED
)
UPDATE sexton.runs r SET counted = true WHERE r.id = ANY (ARRAY(SELECT id FROM held))

-- name: recount
-- The current count; from now on every submission adds to it. $1 name
UPDATE sexton.tenants t SET waiting_count = (
  SELECT count(*) FROM (
    SELECT FROM sexton.runs r WHERE r.tenant = t.name AND r.counted AND r.state <> 'running' ORDER BY r.tenant LIMIT t.waiting_max + 1) w)
WHERE t.name = $1

-- name: pause
-- If it is already paused, only the note changes. $1 name, $2 by, $3 note
UPDATE sexton.tenants t SET paused_at = coalesce(t.paused_at, t.updated_at), paused_by = CASE WHEN t.paused_at IS NULL THEN $2::text ELSE t.paused_by END,
  note = $3::text
WHERE t.name = $1::text

-- name: resume
UPDATE sexton.tenants t SET paused_at = NULL, paused_by = NULL, note = NULL WHERE t.name = $1

-- name: remove
WITH gone AS (
  DELETE FROM sexton.tenants t WHERE t.name = $1::text RETURNING t.name
), unused AS (  -- slots that no run holds
  DELETE FROM sexton.slots s USING gone WHERE s.key = '@tenant:' || gone.name AND s.run_id IS NULL
)
SELECT name FROM gone

-- name: ready_queues
-- The queues where its runs may wait for a worker: one index probe per queue with ready runs.
WITH RECURSIVE q AS (
  (SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' ORDER BY r.queue LIMIT 1)
  UNION ALL
  SELECT n.queue FROM q CROSS JOIN LATERAL (
    SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' AND r.queue > q.queue ORDER BY r.queue LIMIT 1) n
)
SELECT queue FROM q LIMIT 1000
