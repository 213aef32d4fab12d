-- When the oldest ready run of a queue and lane was due: a loose index scan, which looks at the head of each tenant, of a limited number
-- of tenants in the order of their names. With more tenants than that, the true answer may be older.
-- Promises: reads one index entry per tenant, however many runs are ready.
-- Called by: store/views/overview.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.oldest_ready(in_queue text, in_lane smallint, tenants_limit bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE head AS (
    (SELECT r.tenant, r.due_at, 1 AS step FROM sexton.runs r
     WHERE r.state = 'ready' AND r.queue = in_queue AND r.lane = in_lane ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.due_at, t.step + 1 FROM head t CROSS JOIN LATERAL (
      SELECT r.tenant, r.due_at FROM sexton.runs r WHERE r.state = 'ready' AND r.queue = in_queue AND r.lane = in_lane AND r.tenant > t.tenant
      ORDER BY r.tenant, r.due_at, r.id LIMIT 1) n
    WHERE t.step < tenants_limit
  ) SELECT min(head.due_at) FROM head
$$;
