-- name: list
-- Newest first; every filter may be null. $1 ids, $2 task, $3 tenant, $4 queue, $5 permanent, $6 before this id, $7 at most
SELECT id, job_id, run_id, fire_at, buried_at, replay_at, job_version, seq, attempts, lost_count, lane, permanent, origin, status, queue,
  tenant, task, reason, name, error, payload
FROM sexton.dead_letters d
WHERE ($1::uuid[] IS NULL OR d.id = ANY ($1)) AND ($2::text IS NULL OR d.task = $2) AND ($3::text IS NULL OR d.tenant = $3)
  AND ($4::text IS NULL OR d.queue = $4) AND ($5::boolean IS NULL OR d.permanent = $5) AND ($6::uuid IS NULL OR d.id < $6)
ORDER BY d.id DESC LIMIT $7

-- name: ids
-- As list, without the large columns: for a replay or a discard by filter.
SELECT id FROM sexton.dead_letters d
WHERE ($1::uuid[] IS NULL OR d.id = ANY ($1)) AND ($2::text IS NULL OR d.task = $2) AND ($3::text IS NULL OR d.tenant = $3)
  AND ($4::text IS NULL OR d.queue = $4) AND ($5::boolean IS NULL OR d.permanent = $5)
ORDER BY d.id DESC LIMIT $6

-- name: replay
-- Rule "a replay consumes its letter": DELETE … RETURNING feeds the INSERT. Each run gets a fresh budget, under its job's key.
-- A letter whose job no longer exists or has a live run stays. $1 now, $2 ids
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), locked AS MATERIALIZED (
  SELECT d.id FROM sexton.dead_letters d
  WHERE d.id = ANY ($2::uuid[]) AND EXISTS (SELECT FROM sexton.jobs j WHERE j.id = d.job_id)
    AND NOT EXISTS (SELECT FROM sexton.runs r WHERE r.job_id = d.job_id AND r.fire_at = d.fire_at)
    -- A fire and its backfill may both be here: replayed one after the other.
    AND NOT EXISTS (SELECT FROM sexton.dead_letters e WHERE e.job_id = d.job_id AND e.fire_at = d.fire_at AND e.id < d.id AND e.id = ANY ($2))
  ORDER BY d.id FOR UPDATE SKIP LOCKED
), replayed AS (
  DELETE FROM sexton.dead_letters d WHERE d.id = ANY (ARRAY(SELECT id FROM locked)) RETURNING d.*
), numbered AS MATERIALIZED (
  SELECT r.*, sexton.uuid7((extract(epoch FROM moment.now) * 1000000)::bigint + row_number() OVER (ORDER BY r.id)) AS new_id, moment.now
  FROM replayed r, moment
), given AS (  -- a run with its own payload keeps it
  INSERT INTO sexton.run_payloads (run_id, job_id, payload)
  SELECT n.new_id, n.job_id, p.payload FROM numbered n
  CROSS JOIN LATERAL (SELECT payload FROM sexton.run_payloads WHERE run_payloads.run_id = n.run_id LIMIT 1) p
  WHERE n.job_id >= '80000000-0000-0000-0000-000000000000'
), reopened AS (
  DELETE FROM sexton.endings e WHERE e.job_id = ANY (ARRAY(SELECT job_id FROM replayed)) RETURNING e.job_id
)
INSERT INTO sexton.runs (id, job_id, fire_at, due_at, deadline_at, timeout_s, lease_s, lane, partition, at_most_once, state, origin, seq,
                         queue, tenant, task, job_version, overlap, limit_key)
SELECT n.new_id, n.job_id, n.fire_at, n.now, n.now + make_interval(secs => (v.policy->>'deadline_s')::float8), j.timeout_s,
  (v.policy->>'lease_s')::real, n.lane, sexton.partition_of(n.job_id), j.at_most_once,
  CASE WHEN j.schedule IS NULL THEN 'ready' ELSE 'waiting' END, 'replay',  -- of a recurring job: outside its schedule, under its overlap policy
  CASE WHEN n.origin = 'replay' THEN n.seq + 1 ELSE 1 END, n.queue, n.tenant, n.task, n.job_version,
  CASE WHEN j.schedule IS NULL THEN 0 ELSE sexton.overlap_of(j.recurrence) END,
  sexton.limit_key_of(v.policy, n.payload)
FROM numbered n JOIN LATERAL (SELECT * FROM sexton.jobs WHERE jobs.id = n.job_id LIMIT 1) j ON true
CROSS JOIN LATERAL (SELECT sexton.policy_of(n.job_id, n.job_version) AS policy) v
ORDER BY n.id
RETURNING id, job_id, queue

-- name: release_keys
-- A replay that may repeat its effect: deletes its completion record and its key.
DELETE FROM sexton.idempotency_keys k USING sexton.jobs j
WHERE j.id = ANY ($1::uuid[]) AND k.tenant = j.tenant AND k.key = j.idempotency_key AND k.job_id = j.id

-- name: due_for_replay
SELECT id FROM sexton.dead_letters WHERE replay_at <= (SELECT coalesce($1::timestamptz, clock_timestamp())) ORDER BY replay_at LIMIT $2
FOR UPDATE SKIP LOCKED

-- name: discard
DELETE FROM sexton.dead_letters d WHERE d.id = ANY ($1::uuid[]) RETURNING d.id

-- name: expire
-- By its id, which contains the time of burial. The extra second covers a batch, whose ids are a microsecond apart.
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) - make_interval(secs => $2::float8) AS until
)
DELETE FROM sexton.dead_letters d WHERE d.id = ANY (ARRAY(
  SELECT id FROM sexton.dead_letters
  WHERE id < (SELECT sexton.uuid7_floor(until + interval '1 second') FROM moment) AND buried_at < (SELECT until FROM moment)
  ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED))
