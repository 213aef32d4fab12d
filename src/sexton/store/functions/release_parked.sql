-- Lets parked runs through: as many as their limit has room for, lanes in order, tenants in turn inside a lane; for an ordered key the
-- first by due time, which then has the slot until it ends.
-- Promises: too many do no harm, because the claim asks again; too few are looked at again by every promoter pass
-- (rule "look again every pass"). A run that was let through uses the room, but not if it cannot start (a pause, a full tenant, a task that no worker knows):
-- then others that can start are let through past it, so at most twice the room is ready. The first in line of an ordered key with a
-- rate does not wait for a slot that it holds itself.
-- `wanted_keys` null: the keys after `after_key` that a run is parked for, at most 1,000; `stopped_at` says where to continue. `next_s`
-- says when to look again.
-- Rule "never wait inside a batch": a limit that another session has locked is left for the next pass; with `wanted_keys`, after 50 ms, once in
-- a transaction (may_wait).
-- Called by: finish_runs, store/sharing/parked_runs.sql. Locks: rows of `limits` in order of key, with SKIP LOCKED (lock_limits); the runs it lets
-- through, with SKIP LOCKED; if `wanted_keys` is null, the advisory lock (7307, 4), which it only tries, so that one session does the whole walk
-- at a time. That saves work and no more: it goes on without it if a role that cannot serve holds it (rule "no lock that others may take").
CREATE OR REPLACE FUNCTION sexton.release_parked(wanted_keys text[] DEFAULT NULL, at timestamptz DEFAULT NULL, after_key text DEFAULT '',
  OUT queues text[], OUT released int, OUT next_s float8, OUT stopped_at text)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  keys text[];
  known limits;
  room int;
  tokens int;
  ready_count int;
  chosen uuid[];
  more uuid[];
  past record;
  served text;
  next_tenant text;
  first_lane smallint;
  share int;
  named text[];
  free_count int;
BEGIN
  released := 0;
  queues := '{}';
  IF wanted_keys IS NULL THEN
    IF NOT pg_try_advisory_xact_lock(7307, 4) AND sexton.held_by_service(7307, 4) THEN
      next_s := 0.02;  -- another session does it, maybe an idle worker that only looks from time to time and is not there when a bucket has filled
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
      next_s := 0;  -- once round the circle, then pause
    END IF;
  ELSE
    SELECT array_agg(k.key) INTO keys FROM (SELECT DISTINCT unnest(wanted_keys) AS key) k
    CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.state = 'parked' AND r.limit_key = k.key ORDER BY r.limit_key, r.due_at, r.id LIMIT 1) some_run;
  END IF;
  IF keys IS NULL THEN
    RETURN;
  END IF;

  -- A limit that no longer exists holds nothing back.
  UPDATE runs r SET limit_key = NULL, state = 'ready' WHERE r.ctid = ANY (ARRAY(
    SELECT p.ctid FROM runs p
    WHERE p.state = 'parked' AND p.limit_key = ANY (ARRAY(SELECT k FROM unnest(keys) AS k WHERE NOT EXISTS (SELECT FROM limits l WHERE l.key = k)))
    FOR UPDATE SKIP LOCKED));

  SELECT count(*) INTO free_count FROM (SELECT FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE SKIP LOCKED) f;
  IF free_count < (SELECT count(*) FROM limits l WHERE l.key = ANY (keys)) THEN
    IF wanted_keys IS NULL OR NOT sexton.may_wait() OR NOT sexton.lock_limits(keys) THEN
      next_s := least(next_s, 0.1);
    END IF;
  END IF;
  FOR known IN SELECT * FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE SKIP LOCKED LOOP
    room := coalesce(known.running, 1000000) - (SELECT count(*) FROM slots s WHERE s.key = known.key AND s.run_id IS NOT NULL);
    tokens := sexton.tokens(known.bucket_at, known.count / known.per_s, known.burst, moment);
    IF known.count IS NOT NULL THEN
      room := least(room, tokens);
      -- After half a bucket: often enough that it never overflows, but not for every token.
      next_s := least(next_s, greatest(0.005, least(1, known.burst * known.per_s / known.count / 2)));
    END IF;
    IF room <= 0 AND known.running = 1 AND coalesce(tokens, 1) > 0 THEN
      -- Between two attempts a run keeps the slot of an ordered key. If its rate then held it back, only the run itself is in
      -- its way.
      UPDATE runs r SET state = 'ready' WHERE r.id = (
        SELECT p.id FROM runs p WHERE p.state = 'parked' AND p.slot IS NOT NULL AND p.limit_key = known.key AND p.id = (
          SELECT s.run_id FROM slots s WHERE s.key = known.key AND s.run_id IS NOT NULL ORDER BY s.n LIMIT 1) FOR UPDATE SKIP LOCKED)
      RETURNING ARRAY[r.queue] INTO named;
      IF FOUND THEN
        queues := queues || named;
        released := released + 1;
      END IF;
    END IF;
    CONTINUE WHEN room <= 0;

    IF known.ordered THEN
      SELECT array_agg(p.id) INTO chosen FROM (
        -- The first alone: if another session has locked it, none is let through past it.
        SELECT r.id, r.due_at FROM runs r WHERE r.state = 'parked' AND r.limit_key = known.key AND r.id = (
          SELECT f.id FROM runs f WHERE f.state = 'parked' AND f.limit_key = known.key ORDER BY f.due_at, f.id LIMIT 1) FOR UPDATE SKIP LOCKED) p
      -- A run that is due earlier may still wait for its promotion, by another scheduler or by the successor of a dead one.
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
      -- A single tenant gets all the room; several take turns.
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
      EXIT WHEN more IS NULL;  -- another session has locked them
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
