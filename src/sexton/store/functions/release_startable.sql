-- Lets parked runs of one key through that could start now, past those that could not: lanes in order, tenants in turn from the one after
-- `served`.
-- Promises: looks at most at 1,000 tenants of a lane; where none of them has such a run, the next look continues behind them.
-- Called by: release_parked. Locks: the runs, in id order with SKIP LOCKED; the caller holds the row of the limit.
CREATE OR REPLACE FUNCTION sexton.release_startable(wanted_key text, wanted int, moment timestamptz, INOUT served text, OUT released int, OUT queues text[])
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  open_queues text[];
  open_tasks text[];
  chosen uuid[];
  last_tenant text;
  looked_at text;
  wanted_lane int := 0;
  count_of_lane int;
  named text[];
BEGIN
  released := 0;
  queues := '{}';
  WITH RECURSIVE places (queue, task, n) AS (
    (SELECT r.queue, r.task, 1 FROM runs r WHERE r.state = 'parked' AND r.limit_key = wanted_key
     ORDER BY r.queue, r.task, r.lane, r.tenant, r.due_at, r.id LIMIT 1)
    UNION ALL
    SELECT o.queue, o.task, p.n + 1 FROM places p CROSS JOIN LATERAL (
      SELECT r.queue, r.task FROM runs r WHERE r.state = 'parked' AND r.limit_key = wanted_key AND (r.queue, r.task) > (p.queue, p.task)
      ORDER BY r.queue, r.task, r.lane, r.tenant, r.due_at, r.id LIMIT 1) o
    WHERE p.n < 1000
  )
  SELECT array_agg(p.queue), array_agg(p.task) INTO open_queues, open_tasks FROM places p WHERE sexton.has_takers(p.queue, p.task, moment);
  IF open_queues IS NULL THEN
    RETURN;
  END IF;

  WHILE wanted_lane <= 3 AND released < wanted LOOP
    WITH RECURSIVE walk (tenant, wrapped, step, found, weight, room, has_some) AS (
      SELECT served, false, 0, 0, 1, NULL::int, false
      UNION ALL
      SELECT n.tenant, n.wrapped, n.step + 1, n.found + (n.has_some AND t.has_room)::int, t.weight, t.room, n.has_some AND t.has_room FROM (
        SELECT m.tenant, m.wrapped, m.step, m.found, EXISTS (
          SELECT FROM unnest(open_queues, open_tasks) AS p(queue, task) CROSS JOIN LATERAL (
            SELECT FROM runs r WHERE r.state = 'parked' AND r.limit_key = wanted_key AND r.queue = p.queue AND r.task = p.task
              AND r.lane = wanted_lane AND r.tenant = m.tenant ORDER BY r.due_at, r.id LIMIT 1) some_run) AS has_some
        FROM (
          -- The step before the second half of the circle belongs to no tenant.
          SELECT coalesce(o.tenant, CASE WHEN NOT w.wrapped THEN '' END) AS tenant, w.wrapped OR o.tenant IS NULL AS wrapped, w.step, w.found
          FROM walk w LEFT JOIN LATERAL (
            SELECT r.tenant FROM runs r WHERE r.state = 'parked' AND r.limit_key = wanted_key AND r.lane = wanted_lane AND r.tenant > w.tenant
            ORDER BY r.tenant, r.due_at, r.id LIMIT 1) o ON true
          WHERE w.found < wanted - released AND w.step < 1000 OFFSET 0) m
        WHERE m.tenant IS NOT NULL AND NOT (m.wrapped AND m.tenant > served) OFFSET 0) n
      CROSS JOIN LATERAL (
        SELECT o.weight, o.room, o.is_served AND (o.room IS NULL OR o.room > 0) AS has_room FROM (
          SELECT s.weight, s.is_served, CASE WHEN s.room IS NOT NULL THEN s.room - (
            SELECT count(*) FROM runs r WHERE r.state = 'ready' AND r.limit_key = wanted_key AND r.tenant = n.tenant)::int END AS room
          FROM sexton.standing(n.tenant, false) s OFFSET 0) o) t
    ), offered AS MATERIALIZED (
      SELECT w.tenant, w.step, w.weight, least(w.room, (w.weight * ceil((wanted - released)::float8 / count(*) OVER ()))::int) AS share
      FROM walk w WHERE w.has_some
    ), ranked AS (
      SELECT o.tenant, o.step, o.weight, c.id, row_number() OVER (PARTITION BY o.step ORDER BY c.due_at, c.id) AS nth
      FROM offered o CROSS JOIN LATERAL (
        SELECT r.id, r.due_at FROM unnest(open_queues, open_tasks) AS p(queue, task) CROSS JOIN LATERAL (
          SELECT i.id, i.due_at FROM runs i WHERE i.state = 'parked' AND i.limit_key = wanted_key AND i.queue = p.queue AND i.task = p.task
            AND i.lane = wanted_lane AND i.tenant = o.tenant ORDER BY i.due_at, i.id LIMIT o.share) r
        ORDER BY r.due_at, r.id LIMIT o.share) c
    ), picked AS (
      SELECT r.id, r.tenant FROM ranked r ORDER BY (r.nth - 1) / r.weight, r.step, r.nth LIMIT wanted - released
    )
    SELECT array_agg(p.id), (array_agg(p.tenant))[count(*)], (SELECT w.tenant FROM walk w WHERE w.step = 1000) INTO chosen, last_tenant, looked_at FROM picked p;
    WITH freed AS (
      UPDATE runs r SET state = 'ready'
      WHERE r.id = ANY (ARRAY(SELECT p.id FROM runs p WHERE p.id = ANY (chosen) AND p.state = 'parked' ORDER BY p.id FOR UPDATE SKIP LOCKED))
      RETURNING r.queue
    )
    SELECT count(*), array_agg(DISTINCT f.queue) INTO count_of_lane, named FROM freed f;
    released := released + count_of_lane;
    queues := queues || named;
    served := coalesce(last_tenant, looked_at, served);
    -- Some tenants had fewer runs than turns: repeat until no tenant is left.
    wanted_lane := wanted_lane + (count_of_lane = 0)::int;
  END LOOP;
END
$$;
