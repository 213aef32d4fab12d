-- What was let through and cannot start leaves the room under its limit to others (docs/adr/014).

-- For those who look past what cannot start: the parked of one queue and task.
CREATE INDEX runs_parked_by_task ON sexton.runs (limit_key, queue, task, lane, tenant, due_at, id) WHERE state = 'parked';

-- Whether anybody would take a ready run of this queue and task now: the queue is open and has a start left, and a worker knows both.
CREATE FUNCTION sexton.has_takers(run_queue text, run_task text, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (
      SELECT FROM sexton.queues q WHERE q.name = run_queue
        AND (q.paused_at IS NOT NULL OR (q.release_rate IS NOT NULL AND sexton.tokens(q.bucket_at, q.release_rate, q.release_burst, moment) <= 0)))
    AND EXISTS (SELECT FROM sexton.workers w WHERE w.lost_at IS NULL AND NOT w.draining AND run_queue = ANY (w.queues) AND run_task = ANY (w.tasks))
$$;

-- How many of the runs that were let through under a key could start now: of a tenant no more than it has room for.
CREATE FUNCTION sexton.startable_count(wanted_key text, moment timestamptz) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(least(t.count, s.room)), 0)::int FROM (
    SELECT p.tenant, sum(p.count) AS count FROM (
      SELECT r.tenant, r.queue, r.task, count(*) AS count FROM sexton.runs r
      WHERE r.state = 'ready' AND r.limit_key = wanted_key GROUP BY r.tenant, r.queue, r.task) p
    WHERE sexton.has_takers(p.queue, p.task, moment) GROUP BY p.tenant) t
  CROSS JOIN LATERAL sexton.standing(t.tenant, false) s WHERE s.is_served
$$;

-- Lets parked runs of a key through that could start now, past those that could not: lanes in order, tenants in turn from the one after
-- `served`. At most 1,000 tenants of a lane are looked at; where none of them has anything, the next look goes on behind them.
CREATE FUNCTION sexton.release_startable(wanted_key text, wanted int, moment timestamptz, INOUT served text, OUT released int, OUT queues text[])
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
          -- The step before the second half of the circle is on nobody.
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
    -- Some had less than they were offered: once more, until there is nobody.
    wanted_lane := wanted_lane + (count_of_lane = 0)::int;
  END LOOP;
END
$$;

-- Lets parked runs through: as many as their limit has room for, lanes in order, tenants in turn inside a lane; for an ordered key the
-- first by due time, which then has the slot until it ends. Too many do no harm, the claim asks again; too few are looked at again by
-- every promoter pass (rule 5). What was let through has the room, but not if it cannot start, for a pause, a full tenant or a task that
-- nobody knows: then others that can are let through past it. So at most twice the room is ready.
-- `wanted_keys` null: the keys that something is parked for, 1,000 of them, those after `after_key`; `stopped_at` says where to go on.
DROP FUNCTION sexton.release_parked(text[], timestamptz);
CREATE FUNCTION sexton.release_parked(wanted_keys text[] DEFAULT NULL, at timestamptz DEFAULT NULL, after_key text DEFAULT '',
  OUT queues text[], OUT released int, OUT next_s float8, OUT stopped_at text)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  keys text[];
  known limits;
  room int;
  ready_count int;
  chosen uuid[];
  more uuid[];
  past record;
  served text;
  next_tenant text;
  first_lane smallint;
  share int;
  named text[];
BEGIN
  released := 0;
  queues := '{}';
  IF wanted_keys IS NULL THEN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('sexton.release_parked', 0)) THEN
      next_s := 0.02;  -- another is at it, maybe a worker that looks once in a while: it will not be there when a bucket has filled
      stopped_at := after_key;
      RETURN;
    END IF;
    WITH RECURSIVE walk (key, n) AS (
      (SELECT r.limit_key, 1 FROM runs r WHERE r.state = 'parked' AND r.limit_key > after_key ORDER BY r.limit_key, r.due_at, r.id LIMIT 1)
      UNION ALL
      SELECT n.limit_key, w.n + 1 FROM walk w CROSS JOIN LATERAL (
        SELECT r.limit_key FROM runs r WHERE r.state = 'parked' AND r.limit_key > w.key ORDER BY r.limit_key, r.due_at, r.id LIMIT 1) n
      WHERE w.n < 1000
    )
    SELECT array_agg(walk.key), max(walk.key) FILTER (WHERE walk.n = 1000) INTO keys, stopped_at FROM walk;
    IF stopped_at IS NOT NULL THEN
      next_s := 0;  -- once round the circle, then rest
    END IF;
  ELSE
    SELECT array_agg(k.key) INTO keys FROM (SELECT DISTINCT unnest(wanted_keys) AS key) k
    CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.state = 'parked' AND r.limit_key = k.key ORDER BY r.limit_key, r.due_at, r.id LIMIT 1) some_run;
  END IF;
  IF keys IS NULL THEN
    RETURN;
  END IF;

  -- A limit that is no more holds nothing back.
  UPDATE runs r SET limit_key = NULL, state = 'ready'
  WHERE r.state = 'parked' AND r.limit_key = ANY (ARRAY(SELECT k FROM unnest(keys) AS k WHERE NOT EXISTS (SELECT FROM limits l WHERE l.key = k)));

  FOR known IN SELECT * FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE LOOP
    room := coalesce(known.running, 1000000) - (SELECT count(*) FROM slots s WHERE s.key = known.key AND s.run_id IS NOT NULL);
    IF known.count IS NOT NULL THEN
      room := least(room, sexton.tokens(known.bucket_at, known.count / known.per_s, known.burst, moment));
      -- Half a bucket from now: often enough that it never overflows, not once for every token.
      next_s := least(next_s, greatest(0.005, least(1, known.burst * known.per_s / known.count / 2)));
    END IF;
    CONTINUE WHEN room <= 0;

    IF known.ordered THEN
      SELECT array_agg(p.id) INTO chosen FROM (
        SELECT r.id, r.due_at FROM runs r WHERE r.state = 'parked' AND r.limit_key = known.key ORDER BY r.due_at, r.id LIMIT 1 FOR UPDATE SKIP LOCKED) p
      -- One that is due before it may still wait to be promoted, by another scheduler or by the heir of one that died.
      WHERE NOT EXISTS (SELECT FROM runs r WHERE r.state IN ('waiting', 'blocked') AND r.limit_key = known.key AND (r.due_at, r.id) < (p.due_at, p.id)
                        ORDER BY r.limit_key, r.due_at, r.id LIMIT 1);
      IF chosen IS NOT NULL AND (sexton.take_slots(ARRAY[known.key], ARRAY[1], chosen))[1] IS NOT NULL THEN
        UPDATE runs r SET state = 'ready', slot = 1 WHERE r.id = chosen[1] RETURNING ARRAY[r.queue] INTO named;
        queues := queues || named;
        released := released + 1;
      END IF;
      CONTINUE;
    END IF;

    SELECT count(*) INTO ready_count FROM (
      SELECT FROM runs r WHERE r.state = 'ready' AND r.limit_key = known.key ORDER BY r.limit_key LIMIT room) r;
    IF ready_count >= room THEN
      room := room - sexton.startable_count(known.key, moment);
      CONTINUE WHEN room <= 0;
      SELECT * INTO past FROM sexton.release_startable(known.key, room, moment, known.served_tenant);
      released := released + past.released;
      queues := queues || past.queues;
      IF past.served <> known.served_tenant THEN
        UPDATE limits l SET served_tenant = past.served WHERE l.key = known.key;
      END IF;
      CONTINUE;
    END IF;
    room := room - ready_count;

    chosen := '{}';
    served := known.served_tenant;
    WHILE room > cardinality(chosen) LOOP
      SELECT r.lane INTO first_lane FROM runs r
      WHERE r.state = 'parked' AND r.limit_key = known.key ORDER BY r.lane, r.tenant, r.due_at, r.id LIMIT 1;
      EXIT WHEN NOT FOUND;
      SELECT r.tenant INTO next_tenant FROM runs r
      WHERE r.state = 'parked' AND r.limit_key = known.key AND r.lane = first_lane AND r.tenant > served ORDER BY r.tenant, r.due_at, r.id LIMIT 1;
      IF NOT FOUND THEN
        SELECT r.tenant INTO next_tenant FROM runs r
        WHERE r.state = 'parked' AND r.limit_key = known.key AND r.lane = first_lane ORDER BY r.tenant, r.due_at, r.id LIMIT 1;
      END IF;
      -- Alone, it gets all the room there is; else its turns.
      IF EXISTS (SELECT FROM runs r WHERE r.state = 'parked' AND r.limit_key = known.key AND r.lane = first_lane AND r.tenant > next_tenant
                 ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
        OR EXISTS (SELECT FROM runs r WHERE r.state = 'parked' AND r.limit_key = known.key AND r.lane = first_lane AND r.tenant < next_tenant
                   ORDER BY r.tenant, r.due_at, r.id LIMIT 1) THEN
        SELECT coalesce((SELECT t.weight FROM tenants t WHERE t.name = next_tenant), 1) INTO share;
      ELSE
        share := room;
      END IF;
      WITH freed AS (
        UPDATE runs r SET state = 'ready' WHERE r.id = ANY (ARRAY(
          SELECT p.id FROM runs p WHERE p.state = 'parked' AND p.limit_key = known.key AND p.lane = first_lane AND p.tenant = next_tenant
          ORDER BY p.due_at, p.id LIMIT least(share, room - cardinality(chosen)) FOR UPDATE SKIP LOCKED))
        RETURNING r.id, r.queue
      )
      SELECT array_agg(f.id), array_agg(DISTINCT f.queue) INTO more, named FROM freed f;
      EXIT WHEN more IS NULL;  -- somebody else is at them
      chosen := chosen || more;
      queues := queues || named;
      served := next_tenant;
    END LOOP;
    released := released + cardinality(chosen);
    IF served <> known.served_tenant THEN
      UPDATE limits l SET served_tenant = served WHERE l.key = known.key;
    END IF;
  END LOOP;
  SELECT array_agg(DISTINCT q) INTO queues FROM unnest(queues) AS q;
END
$$;

-- A key that allowed several at once and is now ordered: of the runs that hold its slots one keeps the first between its tries, and the
-- others get in line. The name comes before `hold_back`, which has to see that the slot is gone.
CREATE TRIGGER cede_slot BEFORE UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (OLD.slot > 1 AND OLD.state = 'running' AND NEW.state <> 'running' AND NEW.slot IS NOT NULL) EXECUTE FUNCTION sexton.step_out();

-- As before, at the moment of the statement that wrote the schedule.
CREATE OR REPLACE FUNCTION sexton.make_limits_of_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sexton.make_limits(
    jsonb_build_array(jsonb_build_object('key', sexton.limit_key_of(NEW.policy, NEW.payload), 'limit', NEW.policy->'limit')),
    coalesce((SELECT v.replaced_at FROM sexton.job_versions v WHERE v.job_id = NEW.id AND v.version = NEW.version - 1), NEW.submitted_at));
  RETURN NULL;
END
$$;

-- Frees slots whose run does not hold them: there are none, unless somebody changed runs by hand or a way of ending a run forgot its
-- slot. Lock, then decide (rule 4): one that was taken since the first look belongs to a run that only a later look can see.
CREATE OR REPLACE FUNCTION sexton.mend_slots() RETURNS int LANGUAGE plpgsql SET search_path = sexton, pg_temp
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  suspects tid[];
  mended int;
BEGIN
  SELECT array_agg(l.place) INTO suspects FROM (
    SELECT s.ctid AS place FROM slots s WHERE s.run_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM runs r WHERE r.id = s.run_id AND (
        (s.key = r.limit_key AND r.slot = s.n) OR (s.key = '@tenant:' || r.tenant AND r.tenant_slot = s.n)))
    ORDER BY s.key, s.n FOR UPDATE SKIP LOCKED) l;
  IF suspects IS NULL THEN
    RETURN 0;
  END IF;
  UPDATE slots s SET run_id = NULL WHERE s.ctid = ANY (suspects) AND s.run_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM runs r WHERE r.id = s.run_id AND (
      (s.key = r.limit_key AND r.slot = s.n) OR (s.key = '@tenant:' || r.tenant AND r.tenant_slot = s.n)));
  GET DIAGNOSTICS mended = ROW_COUNT;
  RETURN mended;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
