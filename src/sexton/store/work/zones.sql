-- name: newest
SELECT max(version) AS version FROM sexton.tzdata

-- name: take_over
-- Only newer data, and of many nodes one succeeds. $1 now, $2 release, $3 names of its zones, $4 their rules
WITH taken AS (
  INSERT INTO sexton.tzdata (version, taken_at)
  SELECT $2::text, coalesce($1::timestamptz, clock_timestamp())
  WHERE NOT EXISTS (SELECT FROM sexton.tzdata t WHERE t.version >= $2::text)
  ON CONFLICT (version) DO NOTHING RETURNING version
), kept AS (
  INSERT INTO sexton.zones (tzdata, name, rules)
  SELECT t.version, z.name, z.rules FROM taken t, unnest($3::text[], $4::bytea[]) AS z (name, rules)
)
SELECT version FROM taken

-- name: behind
-- Schedules that were planned with older data than $2, in the order of their ids, after $1 and at most $3. Schedules whose rule
-- was not read yet are left out: the planner that reads it first has the newest data.
SELECT j.id FROM sexton.jobs_recurring j WHERE j.id > $1 AND j.over_at IS NULL AND j.tzdata < $2::text ORDER BY j.id LIMIT $3

-- name: lock_behind
-- Those of $1 that are still behind $2, with their zone as it was when they were planned. A session that changes one at this
-- moment records the release that it used.
SELECT j.id, coalesce(j.schedule->>'timezone', 'UTC') AS zone, z.rules, j.tzdata
FROM sexton.jobs_recurring j LEFT JOIN sexton.zones z ON z.tzdata = j.tzdata AND z.name = coalesce(j.schedule->>'timezone', 'UTC')
WHERE j.id = ANY ($1::uuid[]) AND j.over_at IS NULL AND j.tzdata < $2::text
ORDER BY j.id FOR UPDATE OF j SKIP LOCKED

-- name: coming
-- Planned fires that have not started, and the last fire that was started or decided. Two wall clocks never differ by more than
-- 26 hours. $1 now, $2 jobs
SELECT j.id, j.tenant, j.name, j.schedule, j.plan_cursor_at, z.rules, j.tzdata, moment.now,
  ARRAY(SELECT r.fire_at FROM sexton.runs r
        WHERE r.job_id = j.id AND r.origin = 'schedule' AND r.token = 0 AND r.state = 'waiting' ORDER BY r.fire_at) AS planned,
  greatest(
    (SELECT max(r.fire_at) FROM sexton.runs r WHERE r.job_id = j.id AND r.origin = 'schedule' AND (r.token > 0 OR r.state <> 'waiting')),
    (SELECT max(l.fire_at) FROM (
       SELECT CASE WHEN e.status IN ('missed', 'paused') THEN coalesce((e.result->>'last')::timestamptz, e.fire_at) ELSE e.fire_at END AS fire_at
       FROM sexton.executions e
       WHERE e.job_id = j.id AND e.id >= sexton.uuid7_floor(moment.now - interval '26 hours') AND e.origin = 'schedule'
       ORDER BY e.id DESC LIMIT 100) l)) AS decided_at
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) moment, (
  SELECT * FROM sexton.jobs_recurring k WHERE k.id = ANY ($2::uuid[]) OFFSET 0
) j LEFT JOIN sexton.zones z ON z.tzdata = j.tzdata AND z.name = coalesce(j.schedule->>'timezone', 'UTC')

-- name: take_back
-- As for an edit (rule "job row first"), but promoted runs continue. $1 now, $2 jobs
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
)
UPDATE sexton.jobs_recurring j SET plan_cursor_at = u.cursor_at, plan_at = CASE WHEN j.paused_at IS NULL THEN moment.now END,
  fire_count = greatest(j.fire_count - u.removed_count, 0)
FROM moment, sexton.unplan($2::uuid[], moment.now, '{waiting}') u WHERE j.id = u.job_id

-- name: mark
-- $1 jobs, $2 release
UPDATE sexton.jobs_recurring j SET tzdata = $2::text WHERE j.id = ANY ($1::uuid[])

-- name: set_cursors
-- $1 jobs, $2 the instant to plan each from
UPDATE sexton.jobs_recurring j SET plan_cursor_at = f.cursor_at
FROM unnest($1::uuid[], $2::timestamptz[]) AS f (id, cursor_at) WHERE j.id = f.id

-- name: forget
-- Releases older than $2 that no schedule uses, after $2 has been here for a month: until then a node that was not upgraded may
-- still plan with them. $1 now
WITH past AS (
  DELETE FROM sexton.tzdata d WHERE d.version = ANY (ARRAY(
    SELECT t.version FROM sexton.tzdata t
    WHERE t.version < $2::text
      AND (SELECT n.taken_at FROM sexton.tzdata n WHERE n.version = $2::text) < coalesce($1::timestamptz, clock_timestamp()) - interval '30 days'
      AND NOT EXISTS (SELECT FROM sexton.jobs_recurring j WHERE j.tzdata = t.version AND j.over_at IS NULL)
    FOR UPDATE SKIP LOCKED))
  RETURNING d.version
)
DELETE FROM sexton.zones z USING past p WHERE z.tzdata = p.version
