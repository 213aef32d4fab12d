-- Each queue and lane that has ready runs, `at_most` of them; null: all.
-- Promises: a loose index scan: its cost grows with the number of queues and lanes, not with the number of ready runs.
-- Called by: store/views/overview.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.ready_flows(at_most int) RETURNS TABLE (queue text, lane smallint)
LANGUAGE sql STABLE SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off AS $$
  WITH RECURSIVE flows AS (
    (SELECT r.queue, r.lane FROM runs r WHERE r.state = 'ready' ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT 1)
    UNION ALL
    SELECT n.queue, n.lane FROM flows f CROSS JOIN LATERAL (
      SELECT r.queue, r.lane FROM runs r
      WHERE r.state = 'ready' AND (r.queue, r.lane) > (f.queue, f.lane) ORDER BY r.queue, r.lane, r.tenant, r.due_at, r.id LIMIT 1
    ) n
  )
  SELECT f.queue, f.lane FROM flows f LIMIT at_most
$$;
