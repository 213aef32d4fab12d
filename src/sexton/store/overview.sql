-- name: stats
-- Each count names the order of the one index that may serve it, and stops at $2: no plan walks all runs to find the few of a state.
-- $1 now, $2 the limit of each count
WITH RECURSIVE moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), served AS (  -- a loose walk through the ready ones: the oldest of each queue and lane
  (SELECT r.queue, r.lane, r.due_at FROM sexton.runs r WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT 1)
  UNION ALL
  SELECT n.queue, n.lane, n.due_at FROM served s CROSS JOIN LATERAL (
    SELECT r.queue, r.lane, r.due_at FROM sexton.runs r
    WHERE r.state = 'ready' AND (r.queue, r.lane) > (s.queue, s.lane) ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT 1
  ) n
)
SELECT m.now,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT $2 + 1) c)::int AS ready_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id LIMIT $2 + 1) c)::int AS running_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT $2 + 1) c)::int AS waiting_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'paused' ORDER BY uuid_send(r.job_id) LIMIT $2 + 1) c)::int AS paused_count,
  (SELECT count(*) FROM (SELECT FROM sexton.dead_letters d ORDER BY d.id LIMIT $2 + 1) c)::int AS dead_letter_count,
  (SELECT extract(epoch FROM m.now - min(s.due_at))::float8 FROM served s) AS oldest_ready_s,
  (SELECT r.due_at FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT 1) AS next_due_at,
  (SELECT count(*) FROM sexton.workers w WHERE w.lost_at IS NULL)::int AS worker_count,
  (SELECT count(*) FROM sexton.nodes n WHERE n.beat_at > m.now - make_interval(secs => $3::float8))::int AS node_count,
  (SELECT coalesce(sum(w.concurrency), 0) FROM sexton.workers w WHERE w.lost_at IS NULL AND NOT w.draining)::int AS slot_count
FROM moment m

-- name: ended
-- The newest executions by status. A statement of its own: a bound that is known when it starts leaves out partitions. $1 from this id, $2 at most
SELECT t.status, count(*)::int FROM (
  SELECT x.status FROM sexton.executions x WHERE x.id >= $1::uuid ORDER BY x.id DESC LIMIT $2
) t GROUP BY t.status

-- name: queues
-- $1 now, $2 the limit of each count, $3 of queues
WITH RECURSIVE moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), ready_queues AS (
  (SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT 1)
  UNION ALL
  SELECT n.queue FROM ready_queues q CROSS JOIN LATERAL (
    SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' AND r.queue > q.queue ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT 1
  ) n
), ready AS MATERIALIZED (
  SELECT q.queue, c.count, c.oldest_at FROM (SELECT queue FROM ready_queues LIMIT $3::int) q CROSS JOIN LATERAL (
    SELECT count(*), min(l.due_at) AS oldest_at FROM (
      SELECT r.due_at FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = q.queue ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT $2::int + 1) l
  ) c
), running AS MATERIALIZED (
  SELECT r.queue, count(*) FROM (SELECT queue FROM sexton.runs WHERE state = 'running' ORDER BY worker_id LIMIT $2 + 1) r GROUP BY r.queue
), waiting AS MATERIALIZED (
  SELECT r.queue, count(*) FROM (SELECT queue FROM sexton.runs WHERE state = 'waiting' ORDER BY due_at, partition, id LIMIT $2 + 1) r GROUP BY r.queue
), served AS MATERIALIZED (
  SELECT queue, count(*) FROM sexton.workers w CROSS JOIN LATERAL unnest(w.queues) AS queue WHERE w.lost_at IS NULL GROUP BY queue
), named AS (
  SELECT queue FROM ready UNION SELECT queue FROM running UNION SELECT queue FROM waiting UNION SELECT queue FROM served
)
SELECT n.queue AS name, coalesce(ready.count, 0)::int AS ready_count, coalesce(running.count, 0)::int AS running_count,
  coalesce(waiting.count, 0)::int AS waiting_count,
  (coalesce(ready.count, 0) > $2 OR (SELECT sum(count) FROM running) > $2 OR (SELECT sum(count) FROM waiting) > $2) IS TRUE AS capped,
  extract(epoch FROM m.now - ready.oldest_at)::float8 AS oldest_ready_s, coalesce(served.count, 0)::int AS worker_count
FROM named n CROSS JOIN moment m
LEFT JOIN ready ON ready.queue = n.queue LEFT JOIN running ON running.queue = n.queue
LEFT JOIN waiting ON waiting.queue = n.queue LEFT JOIN served ON served.queue = n.queue
ORDER BY n.queue

-- name: tenants
-- Of the ready ones each queue gives its share, so that a long queue does not hide the others. $1 the limit of each count
WITH RECURSIVE ready_queues AS (
  (SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT 1)
  UNION ALL
  SELECT n.queue FROM ready_queues q CROSS JOIN LATERAL (
    SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' AND r.queue > q.queue ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT 1
  ) n
), share AS MATERIALIZED (
  SELECT greatest($1::int / greatest(count(*), 1), 1) AS size FROM ready_queues
), ready AS MATERIALIZED (
  SELECT l.tenant, l.queue FROM ready_queues q CROSS JOIN LATERAL (
    SELECT r.tenant, r.queue FROM sexton.runs r
    WHERE r.state = 'ready' AND r.queue = q.queue ORDER BY r.queue, r.lane, r.due_at, r.id LIMIT (SELECT size + 1 FROM share)
  ) l
), running AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id LIMIT $1 + 1
), waiting AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT $1 + 1
), capped AS MATERIALIZED (
  SELECT (SELECT count(*) FROM running) > $1 OR (SELECT count(*) FROM waiting) > $1
    OR EXISTS (SELECT FROM ready GROUP BY queue HAVING count(*) > (SELECT size FROM share)) AS capped
)
SELECT s.tenant AS name, count(*) FILTER (WHERE s.state = 'ready')::int AS ready_count,
  count(*) FILTER (WHERE s.state = 'running')::int AS running_count, count(*) FILTER (WHERE s.state = 'waiting')::int AS waiting_count,
  (SELECT capped FROM capped) AS capped
FROM (SELECT tenant, 'ready' AS state FROM ready UNION ALL SELECT tenant, 'running' FROM running UNION ALL SELECT tenant, 'waiting' FROM waiting) s
GROUP BY s.tenant ORDER BY s.tenant

-- name: known_tasks
SELECT DISTINCT task FROM sexton.workers w CROSS JOIN LATERAL unnest(w.tasks) AS task WHERE w.lost_at IS NULL
