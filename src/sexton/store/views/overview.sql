-- name: stats
-- Each count names the order of the one index that may serve it, and stops at $2: no plan scans all runs to find the few of a
-- state. $1 now, $2 the limit of each count, $3 the limit of tenants searched for the oldest run
WITH moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), flows AS MATERIALIZED (
  SELECT f.queue, f.lane FROM sexton.ready_flows(NULL) f
), share AS MATERIALIZED (
  SELECT greatest($3::int / greatest(count(*), 1), 1) AS size FROM flows
), fleet AS MATERIALIZED (
  SELECT w.lost_at IS NULL AS is_here, w.concurrency, w.process_slots, w.batch_slots, w.draining, w.quarantine,
    sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), (SELECT now FROM moment)) AS is_alive
  FROM sexton.workers w
)
SELECT m.now,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'ready'
                         ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT $2::int + 1) c)::int AS ready_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id LIMIT $2 + 1) c)::int AS running_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT $2 + 1) c)::int AS waiting_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'parked'
                         ORDER BY r.limit_key, r.lane, r.tenant, r.due_at, r.id LIMIT $2 + 1) c)::int AS parked_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'quarantined' ORDER BY r.queue, r.due_at, r.id LIMIT $2 + 1) c)::int AS quarantined_count,
  (SELECT count(*) FROM (SELECT FROM sexton.runs r WHERE r.state = 'paused' ORDER BY uuid_send(r.job_id) LIMIT $2 + 1) c)::int AS paused_count,
  (SELECT count(*) FROM (SELECT FROM sexton.dead_letters d ORDER BY d.id LIMIT $2 + 1) c)::int AS dead_letter_count,
  (SELECT extract(epoch FROM m.now - min(sexton.oldest_ready(f.queue, f.lane, s.size)))::float8 FROM flows f CROSS JOIN share s) AS oldest_ready_s,
  (SELECT r.due_at FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT 1) AS next_due_at,
  (SELECT count(*) FROM fleet f WHERE f.is_alive)::int AS worker_count,
  (SELECT count(*) FROM fleet f WHERE f.is_here AND NOT f.is_alive)::int AS silent_worker_count,
  (SELECT count(*) FROM sexton.nodes n WHERE sexton.is_alive(n.beat_at, NULL, sexton.node_lease_s(), m.now))::int AS node_count,
  (SELECT coalesce(sum(f.concurrency - f.process_slots - f.batch_slots), 0) FROM fleet f WHERE f.is_alive AND NOT f.draining AND NOT f.quarantine)::int AS slot_count,
  (SELECT coalesce(sum(f.process_slots), 0) FROM fleet f WHERE f.is_alive AND NOT f.draining AND NOT f.quarantine)::int AS process_slot_count,
  (SELECT coalesce(sum(f.batch_slots), 0) FROM fleet f WHERE f.is_alive AND NOT f.draining AND NOT f.quarantine)::int AS batch_slot_count
FROM moment m

-- name: ended
-- The newest executions by status. A separate statement: a bound that is known when it starts skips partitions. $1 from this
-- id, $2 at most
SELECT t.status, count(*)::int FROM (
  SELECT x.status FROM sexton.executions x WHERE x.id >= $1::uuid ORDER BY x.id DESC LIMIT $2
) t GROUP BY t.status

-- name: queues
-- $1 now, $2 the limit of each count, $3 of queues, $4 of tenants searched for the oldest run
WITH RECURSIVE moment AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), ready_queues AS (
  (SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT 1)
  UNION ALL
  SELECT n.queue FROM ready_queues q CROSS JOIN LATERAL (
    SELECT r.queue FROM sexton.runs r WHERE r.state = 'ready' AND r.queue > q.queue ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT 1
  ) n
), chosen AS MATERIALIZED (
  SELECT queue FROM ready_queues LIMIT $3::int
), share AS MATERIALIZED (
  SELECT greatest($4::int / greatest(count(*) * 4, 1), 1) AS size FROM chosen
), ready AS MATERIALIZED (
  SELECT q.queue, c.count, o.oldest_at FROM chosen q CROSS JOIN LATERAL (
    SELECT count(*) FROM (
      SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = q.queue ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT $2::int + 1) l
  ) c CROSS JOIN LATERAL (
    SELECT min(sexton.oldest_ready(q.queue, f.lane, s.size)) AS oldest_at
    FROM unnest(ARRAY[0, 1, 2, 3]::smallint[]) AS f(lane) CROSS JOIN share s
  ) o
), running AS MATERIALIZED (
  SELECT r.queue, count(*) FROM (SELECT queue FROM sexton.runs WHERE state = 'running' ORDER BY worker_id LIMIT $2 + 1) r GROUP BY r.queue
), waiting AS MATERIALIZED (
  SELECT r.queue, count(*) FROM (SELECT queue FROM sexton.runs WHERE state = 'waiting' ORDER BY due_at, partition, id LIMIT $2 + 1) r GROUP BY r.queue
), parked AS MATERIALIZED (
  SELECT r.queue, count(*) FROM (SELECT queue FROM sexton.runs WHERE state = 'parked'
                                 ORDER BY limit_key, lane, tenant, due_at, id LIMIT $2 + 1) r GROUP BY r.queue
), served AS MATERIALIZED (
  SELECT queue, count(*) FROM sexton.workers w CROSS JOIN LATERAL unnest(w.queues) AS queue
  WHERE sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), (SELECT now FROM moment)) GROUP BY queue
), named AS (
  SELECT queue FROM ready UNION SELECT queue FROM running UNION SELECT queue FROM waiting UNION SELECT queue FROM parked UNION SELECT queue FROM served
)
SELECT n.queue AS name, coalesce(ready.count, 0)::int AS ready_count, coalesce(running.count, 0)::int AS running_count,
  coalesce(waiting.count, 0)::int AS waiting_count, coalesce(parked.count, 0)::int AS parked_count,
  (coalesce(ready.count, 0) > $2 OR (SELECT sum(count) FROM running) > $2 OR (SELECT sum(count) FROM waiting) > $2
    OR (SELECT sum(count) FROM parked) > $2) IS TRUE AS capped,
  extract(epoch FROM m.now - ready.oldest_at)::float8 AS oldest_ready_s, coalesce(served.count, 0)::int AS worker_count
FROM named n CROSS JOIN moment m
LEFT JOIN ready ON ready.queue = n.queue LEFT JOIN running ON running.queue = n.queue LEFT JOIN waiting ON waiting.queue = n.queue
LEFT JOIN parked ON parked.queue = n.queue LEFT JOIN served ON served.queue = n.queue
ORDER BY n.queue

-- name: tenants
-- Of the ready runs, each queue and lane shows its first tenants, and a limited number of runs of each: neither a long queue
-- nor a large tenant hides the others. $1 the limit of each count, $2 of tenants
WITH flows AS MATERIALIZED (
  SELECT f.queue, f.lane FROM sexton.ready_flows(NULL) f
), share AS MATERIALIZED (
  SELECT greatest($2::int / greatest(count(*), 1), 1) AS size FROM flows
), heads AS MATERIALIZED (
  SELECT f.queue, f.lane, h.tenant, h.step FROM flows f CROSS JOIN LATERAL (
    WITH RECURSIVE head AS (
      (SELECT r.tenant, 1 AS step FROM sexton.runs r
       WHERE r.state = 'ready' AND r.queue = f.queue AND r.lane = f.lane ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
      UNION ALL
      SELECT n.tenant, t.step + 1 FROM head t CROSS JOIN LATERAL (
        SELECT r.tenant FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = f.queue AND r.lane = f.lane AND r.tenant > t.tenant
        ORDER BY r.tenant, r.due_at, r.id LIMIT 1) n
      WHERE t.step <= (SELECT size FROM share)
    ) SELECT head.tenant, head.step FROM head
  ) h
), each AS MATERIALIZED (
  SELECT greatest($1::int / greatest(count(*), 1), 1) AS size FROM heads
), ready AS MATERIALIZED (
  SELECT h.tenant, h.step, c.count FROM heads h CROSS JOIN LATERAL (
    SELECT count(*) FROM (
      SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = h.queue AND r.lane = h.lane AND r.tenant = h.tenant
      ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT (SELECT size + 1 FROM each)) l
  ) c
), running AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id LIMIT $1 + 1
), waiting AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT $1 + 1
), parked AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'parked' ORDER BY r.limit_key, r.lane, r.tenant, r.due_at, r.id LIMIT $1 + 1
), capped AS MATERIALIZED (
  SELECT (SELECT count(*) FROM running) > $1 OR (SELECT count(*) FROM waiting) > $1 OR (SELECT count(*) FROM parked) > $1
    OR EXISTS (SELECT FROM ready WHERE count > (SELECT size FROM each) OR step > (SELECT size FROM share)) AS capped
)
SELECT s.tenant AS name, coalesce(sum(s.count) FILTER (WHERE s.state = 'ready'), 0)::int AS ready_count,
  coalesce(sum(s.count) FILTER (WHERE s.state = 'running'), 0)::int AS running_count,
  coalesce(sum(s.count) FILTER (WHERE s.state = 'waiting'), 0)::int AS waiting_count,
  coalesce(sum(s.count) FILTER (WHERE s.state = 'parked'), 0)::int AS parked_count, (SELECT capped FROM capped) AS capped
FROM (
  SELECT tenant, 'ready' AS state, count FROM ready UNION ALL SELECT tenant, 'running', 1 FROM running
  UNION ALL SELECT tenant, 'waiting', 1 FROM waiting UNION ALL SELECT tenant, 'parked', 1 FROM parked) s
GROUP BY s.tenant ORDER BY s.tenant

-- name: tenant
-- One tenant, in all queues and lanes. An index finds its ready runs. Of the other states, a limited number of runs of all
-- tenants is scanned. $1 the limit of each count, $2 tenant
WITH flows AS MATERIALIZED (
  SELECT f.queue, f.lane FROM sexton.ready_flows(1000) f
), ready AS MATERIALIZED (
  SELECT FROM flows f CROSS JOIN LATERAL (
    SELECT FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = f.queue AND r.lane = f.lane AND r.tenant = $2::text
    ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT $1::int + 1) l
  LIMIT $1 + 1
), running AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'running' ORDER BY r.worker_id LIMIT $1 + 1
), waiting AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'waiting' ORDER BY r.due_at, r.partition, r.id LIMIT $1 + 1
), parked AS MATERIALIZED (
  SELECT r.tenant FROM sexton.runs r WHERE r.state = 'parked' ORDER BY r.limit_key, r.lane, r.tenant, r.due_at, r.id LIMIT $1 + 1
)
SELECT $2 AS name, (SELECT count(*) FROM ready)::int AS ready_count,
  (SELECT count(*) FROM running WHERE tenant = $2)::int AS running_count, (SELECT count(*) FROM waiting WHERE tenant = $2)::int AS waiting_count,
  (SELECT count(*) FROM parked WHERE tenant = $2)::int AS parked_count,
  (SELECT count(*) FROM ready) > $1 OR (SELECT count(*) FROM running) > $1 OR (SELECT count(*) FROM waiting) > $1
    OR (SELECT count(*) FROM parked) > $1 AS capped

-- name: known_tasks
SELECT DISTINCT task FROM sexton.workers w CROSS JOIN LATERAL unnest(w.tasks) AS task
WHERE sexton.is_alive(w.beat_at, w.lost_at, coalesce(w.lease_s, w.beat_within_s), coalesce($1::timestamptz, clock_timestamp()))
