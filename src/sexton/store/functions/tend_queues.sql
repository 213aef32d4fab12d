-- Does what queues need from a promoter from time to time.
-- Promises: runs that waited long enough move up one lane, and queues that are released at a certain rate are named if they may continue.
-- `next_s` says when to look again.
-- Called by: store/sharing/parked_runs.sql. Locks: the runs that move up, with SKIP LOCKED.
CREATE OR REPLACE FUNCTION sexton.tend_queues(at timestamptz DEFAULT NULL, OUT queues text[], OUT aged int, OUT next_s float8)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  known queues;
  moved int;
BEGIN
  queues := '{}';
  aged := 0;
  FOR known IN SELECT * FROM queues q WHERE q.ageing_s IS NOT NULL OR q.release_rate IS NOT NULL ORDER BY q.name LOOP
    IF known.ageing_s IS NOT NULL THEN
      -- The oldest runs of each tenant first, a bounded number at a time. A run that is being claimed need not move up.
      WITH RECURSIVE walk (lane, tenant, n) AS (
        (SELECT r.lane, r.tenant, 1 FROM runs r WHERE r.state = 'ready' AND r.queue = known.name AND r.lane > 0
         ORDER BY r.lane, r.tenant, r.due_at, r.id LIMIT 1)
        UNION ALL
        SELECT n.lane, n.tenant, w.n + 1 FROM walk w CROSS JOIN LATERAL (
          SELECT r.lane, r.tenant FROM runs r WHERE r.state = 'ready' AND r.queue = known.name AND (r.lane, r.tenant) > (w.lane, w.tenant)
          ORDER BY r.lane, r.tenant, r.due_at, r.id LIMIT 1) n
        WHERE w.n < 10000
      ), old AS MATERIALIZED (
        SELECT o.id FROM walk w CROSS JOIN LATERAL (
          SELECT r.id FROM runs r
          WHERE r.state = 'ready' AND r.queue = known.name AND r.lane = w.lane AND r.tenant = w.tenant
            AND r.due_at <= moment - make_interval(secs => known.ageing_s)
            AND r.due_at <= moment - make_interval(secs => known.ageing_s * (r.aged + 1))
          ORDER BY r.due_at, r.id LIMIT 100 FOR UPDATE SKIP LOCKED) o
        LIMIT 1000
      )
      UPDATE runs r SET lane = r.lane - 1, aged = r.aged + 1 WHERE r.id = ANY (ARRAY(SELECT old.id FROM old));
      GET DIAGNOSTICS moved = ROW_COUNT;
      aged := aged + moved;
      next_s := least(next_s, CASE WHEN moved > 0 THEN 0.05 ELSE least(greatest(known.ageing_s / 10, 0.1), 10) END);
    END IF;
    IF known.release_rate IS NOT NULL AND known.paused_at IS NULL
      AND EXISTS (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = known.name ORDER BY r.lane, r.tenant, r.due_at, r.id LIMIT 1) THEN
      IF sexton.tokens(known.bucket_at, known.release_rate, known.release_burst, moment) > 0 THEN
        queues := queues || known.name;
      END IF;
      next_s := least(next_s, greatest(0.005, least(1, known.release_burst / known.release_rate / 2)));
    END IF;
  END LOOP;
END
$$;
