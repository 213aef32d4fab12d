-- name: get
SELECT l.key, l.running, l.count, l.per_s, l.burst, l.ordered, l.made_by, l.updated_at,
  CASE WHEN l.count IS NOT NULL THEN sexton.tokens(l.bucket_at, l.count / l.per_s, l.burst, m.now) END AS tokens,
  CASE WHEN l.count IS NOT NULL AND l.bucket_at > '-infinity' THEN
    greatest(0, extract(epoch FROM l.bucket_at - m.now)::float8 + l.per_s / l.count) ELSE 0 END AS next_token_s
FROM sexton.limits l, (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m WHERE l.key = $2::text

-- name: list
-- Each with how many runs hold it and how many wait for it, counted up to $4. $1 now, $2 after this key, $3 at most, $4 the
-- limit of each count, $5 prefix
SELECT l.key, l.running, l.count, l.per_s, l.burst, l.ordered, l.made_by, l.updated_at,
  CASE WHEN l.count IS NOT NULL THEN sexton.tokens(l.bucket_at, l.count / l.per_s, l.burst, m.now) END AS tokens,
  (SELECT count(*) FROM (SELECT FROM sexton.slots s WHERE s.key = l.key AND s.run_id IS NOT NULL LIMIT $4 + 1) c)::int AS held_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'parked' AND r.limit_key = l.key
                         ORDER BY r.limit_key, r.lane, r.tenant, r.due_at, r.id LIMIT $4::int + 1) c)::int AS parked_count
FROM (SELECT * FROM sexton.limits k WHERE k.key > $2::text AND starts_with(k.key, $5::text) ORDER BY k.key LIMIT $3) l,
  (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m
ORDER BY l.key

-- name: holders
-- The runs that hold the slots of a key, longest first. $1 key, $2 at most
SELECT h.run_id, h.job_id, h.task, h.tenant, h.worker_id, w.name AS worker_name, h.claimed_at AS since FROM (
  SELECT s.run_id, r.job_id, r.task, r.tenant, r.worker_id, r.claimed_at
  FROM (SELECT * FROM sexton.slots t WHERE t.key = $1::text AND t.run_id IS NOT NULL ORDER BY t.key, t.n LIMIT $2) s
  JOIN LATERAL (SELECT * FROM sexton.runs WHERE runs.id = s.run_id LIMIT 1) r ON true
) h LEFT JOIN LATERAL (SELECT name FROM sexton.workers WHERE workers.id = h.worker_id LIMIT 1) w ON true
ORDER BY h.claimed_at, h.run_id

-- name: counts
-- How many runs hold it, and how many wait for it: parked, or released and not started. $1 key, $2 the limit of each count
SELECT
  (SELECT count(*) FROM (SELECT FROM sexton.slots s WHERE s.key = $1::text AND s.run_id IS NOT NULL LIMIT $2::int + 1) c)::int AS held_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'parked' AND r.limit_key = $1
                         ORDER BY r.limit_key, r.lane, r.tenant, r.due_at, r.id LIMIT $2 + 1) c)::int AS parked_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.limit_key = $1
                         ORDER BY r.limit_key LIMIT $2 + 1) c)::int AS ready_count

-- name: lock
SELECT l.key FROM sexton.limits l WHERE l.key = $1 FOR UPDATE

-- name: put
-- A bucket keeps its tokens, so that a change of its rate causes no burst. $1 now, $2 key, $3 running, $4 count, $5 per (s), $6
-- burst, $7 ordered, $8 by
INSERT INTO sexton.limits AS l (key, running, count, per_s, burst, ordered, made_by, updated_at)
SELECT $2::text, $3::int, $4::int, $5::float8, $6::int, $7::boolean, $8::text, m.now FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m
ON CONFLICT (key) DO UPDATE SET running = excluded.running, count = excluded.count, per_s = excluded.per_s, burst = excluded.burst,
  ordered = excluded.ordered, made_by = excluded.made_by, updated_at = excluded.updated_at,
  bucket_at = CASE WHEN l.bucket_at = '-infinity' OR l.count IS NULL OR excluded.count IS NULL THEN '-infinity'
    ELSE excluded.updated_at - make_interval(secs => least(excluded.burst, l.burst,
      greatest(0, extract(epoch FROM excluded.updated_at - l.bucket_at)::float8 * l.count / l.per_s)) * excluded.per_s / excluded.count) END

-- name: forget_slots
-- Deletes slots that no run holds; they are created again when they are needed. A claim that is about to take one may wait for
-- the limit that we hold. $1 key, $2 keep the first so many
DELETE FROM sexton.slots s WHERE s.ctid = ANY (ARRAY(
  SELECT o.ctid FROM sexton.slots o WHERE o.key = $1 AND o.n > $2 AND o.run_id IS NULL FOR UPDATE SKIP LOCKED))

-- name: remove
DELETE FROM sexton.limits l WHERE l.key = $1
