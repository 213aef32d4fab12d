-- The claim of suspects (rule "suspects apart"): gives a worker up to `wanted` quarantined runs and marks them running.
-- Promises: the worker then holds at most as many runs as the smallest `company` among them allows; it gets nothing while it holds a run
-- that is not a suspect. Runs with the largest `company` are the least suspected and come first, then the earliest due, over all queues. So
-- innocent runs leave quarantine before a lost group is tried again. A run whose `company` is smaller than the number that the worker would
-- hold ends the group. After each loss a group has a smaller `company`, so every suspect is claimed in the end. Limits, paused queues and tenants, and release rates apply as in
-- claim_runs; a run that a limit keeps back stays quarantined, and the claim passes over it.
-- The row of the worker is locked first, so that two claims of one worker see each other, and a declaration of its loss counts what they took.
-- Called by: store/work/runs.sql. Locks: the worker; rows of queues that have a release rate, and the runs, with SKIP LOCKED; what admit_runs locks.
CREATE OR REPLACE FUNCTION sexton.claim_suspects(
  worker uuid, wanted_queues text[], tasks text[], wanted int, grace_s float8, at timestamptz DEFAULT NULL)
RETURNS SETOF sexton.runs
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  held_count int;
  ordinary_count int;
  bound int;
  names text[];
  rooms int[];
  passed_over uuid[] := '{}';
  picked record;
  admitted boolean[];
  taken_slots int[];
  taken_tenant_slots int[];
  got int;
BEGIN
  PERFORM FROM workers w WHERE w.id = worker AND w.lost_at IS NULL FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT count(*), count(*) FILTER (WHERE coalesce(r.company, 0) = 0), min(r.company) INTO held_count, ordinary_count, bound
  FROM runs r WHERE r.worker_id = worker AND r.state = 'running';
  bound := least(bound, held_count + wanted);
  IF ordinary_count > 0 OR held_count >= bound THEN
    RETURN;
  END IF;
  FOR look IN 1..10 LOOP
    SELECT array_agg(q.name), array_agg(q.room) INTO names, rooms FROM (
      SELECT known.name, bound AS room FROM unnest(wanted_queues) AS known(name)
      WHERE NOT EXISTS (SELECT FROM queues o WHERE o.name = known.name AND (o.paused_at IS NOT NULL OR o.release_rate IS NOT NULL))
      UNION ALL SELECT paced.name, paced.room FROM (
        SELECT o.name, sexton.tokens(o.bucket_at, o.release_rate, o.release_burst, moment) AS room FROM queues o
        WHERE o.name = ANY (wanted_queues) AND o.paused_at IS NULL AND o.release_rate IS NOT NULL FOR UPDATE SKIP LOCKED) paced) q;
    WITH found AS MATERIALIZED (
      SELECT s.* FROM unnest(names, rooms) AS q(name, room) CROSS JOIN LATERAL (
        SELECT r.id, r.due_at, r.company, r.limit_key, r.slot, r.tenant FROM runs r
        WHERE r.state = 'quarantined' AND r.queue = q.name AND r.due_at <= moment AND r.id <> ALL (passed_over)
          AND sexton.is_for(r, tasks, false, moment)
          AND NOT EXISTS (SELECT FROM tenants t WHERE t.name = r.tenant AND t.paused_at IS NOT NULL)
        ORDER BY r.queue, r.company DESC, r.due_at, r.id LIMIT least(q.room, bound - held_count) FOR UPDATE OF r SKIP LOCKED) s
    ), grouped AS (
      SELECT f.*, row_number() OVER (ORDER BY f.company DESC, f.due_at, f.id) AS nth, f.company AS smallest FROM found f
    )
    SELECT array_agg(g.id ORDER BY g.nth) AS ids, array_agg(g.limit_key ORDER BY g.nth) AS keys, array_agg(g.slot ORDER BY g.nth) AS held,
      coalesce(bool_or(EXISTS (SELECT FROM tenants t WHERE t.name = g.tenant AND t.running_max IS NOT NULL)), false) AS has_limited_tenant
    INTO picked FROM grouped g WHERE held_count + g.nth <= least(bound, g.smallest);
    EXIT WHEN picked.ids IS NULL;
    admitted := NULL; taken_slots := NULL; taken_tenant_slots := NULL;
    IF array_remove(picked.keys, NULL) <> '{}' OR picked.has_limited_tenant THEN
      SELECT a.admitted, a.slots, a.tenant_slots INTO admitted, taken_slots, taken_tenant_slots
      FROM sexton.admit_runs(picked.ids, picked.keys, picked.held, picked.has_limited_tenant, look = 1, moment) a;
    END IF;
    RETURN QUERY UPDATE runs r SET
      state = 'running', worker_id = worker, token = r.token + 1, attempt = r.attempt + 1, claimed_at = moment,
      must_end_at = moment + make_interval(secs => least(r.timeout_s, extract(epoch FROM r.deadline_at - moment)) + grace_s),
      slot = taken_slots[p.ord], tenant_slot = taken_tenant_slots[p.ord]
    FROM generate_series(1, cardinality(picked.ids)) AS p(ord)
    WHERE r.id = ANY (picked.ids) AND r.id = picked.ids[p.ord] AND admitted[p.ord] IS NOT FALSE
    RETURNING r.*;
    GET DIAGNOSTICS got = ROW_COUNT;
    UPDATE queues o SET bucket_at = sexton.drawn(o.bucket_at, o.release_rate, o.release_burst, moment, t.count::int)
    FROM (SELECT r.queue, count(*) AS count FROM runs r WHERE r.id = ANY (picked.ids) AND r.state = 'running' GROUP BY r.queue) t
    WHERE o.name = t.queue AND o.release_rate IS NOT NULL;
    held_count := held_count + got;
    EXIT WHEN got = cardinality(picked.ids);
    -- A limit kept some back: the next in line have their turn, as far as the company allows.
    passed_over := passed_over || picked.ids;
    SELECT least(bound, min(r.company)) INTO bound FROM runs r WHERE r.worker_id = worker AND r.state = 'running';
    EXIT WHEN held_count >= bound;
  END LOOP;
END
$$;
