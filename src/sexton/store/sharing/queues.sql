-- name: get
SELECT q.name, q.release_rate::float8, q.release_burst, q.ageing_s::float8, q.timeout_s::float8, q.jitter_s::float8, q.policy, q.paused_at, q.paused_by, q.note,
  q.updated_at
FROM sexton.queues q WHERE q.name = ANY ($1::text[]) ORDER BY q.name

-- name: list
SELECT q.name, q.release_rate::float8, q.release_burst, q.ageing_s::float8, q.timeout_s::float8, q.jitter_s::float8, q.policy, q.paused_at, q.paused_by, q.note,
  q.updated_at
FROM sexton.queues q WHERE q.name > $1::text ORDER BY q.name LIMIT $2

-- name: lock
-- Rule "lock, then decide": the first caller creates the row. $1 now, $2 name
INSERT INTO sexton.queues (name, updated_at) VALUES ($2::text, coalesce($1::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET updated_at = excluded.updated_at

-- name: put
-- A bucket keeps its tokens, so that a change of its rate causes no burst. $1 now, $2 name, $3 rate, $4 burst, $5 ageing (s),
-- $6 timeout (s), $7 jitter (s), $8 policy
UPDATE sexton.queues q SET release_rate = $3::float8, release_burst = $4::int, ageing_s = $5::float8, timeout_s = $6::float8, jitter_s = $7::float8,
  policy = $8::jsonb, updated_at = m.now,
  bucket_at = CASE WHEN q.bucket_at = '-infinity' OR q.release_rate IS NULL OR $3 IS NULL THEN '-infinity'
    ELSE m.now - make_interval(secs => least($4, q.release_burst, greatest(0, extract(epoch FROM m.now - q.bucket_at)::float8 * q.release_rate)) / $3) END
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) m WHERE q.name = $2::text

-- name: pause
-- If it is already paused, only the note changes. $1 name, $2 by, $3 note
UPDATE sexton.queues q SET paused_at = coalesce(q.paused_at, q.updated_at), paused_by = CASE WHEN q.paused_at IS NULL THEN $2::text ELSE q.paused_by END,
  note = $3::text
WHERE q.name = $1::text

-- name: resume
UPDATE sexton.queues q SET paused_at = NULL, paused_by = NULL, note = NULL WHERE q.name = $1

-- name: remove
DELETE FROM sexton.queues q WHERE q.name = $1 RETURNING q.name
