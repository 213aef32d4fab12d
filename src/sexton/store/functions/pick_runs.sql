-- Picks up to `wanted` ready runs of one queue and lane, locked, in the order in which they are to start.
-- Promises: tenants are walked in a circle by a loose index scan, from where the last claim of this worker stopped. Each has `weight` turns
-- in a round, and what one tenant does not need the others get. So the cost follows what is taken, never how many tenants or runs
-- wait. domain/fairness.py does the same in Python, and tests compare both.
-- `turns`: how many turns of its round the tenant has had, 0 for all; the next claim continues from there. `marks` are the claim
-- cursors: for tenants of which many runs were taken, the last of them: {tenant: [due_at, id]}. The function does not look behind a
-- cursor: normally there are only dead index entries, and to scan those of 100,000 runs takes longer than the claim.
-- Also returns what decides whether the runs may start: the keys of their limits, the slots they hold, whether any of their tenants
-- has a limit.
-- Called by: claim_runs. Locks: the picked runs, FOR UPDATE SKIP LOCKED.
CREATE OR REPLACE FUNCTION sexton.pick_runs(
  worker_queue text, worker_lane smallint, tasks text[], wanted int, ahead boolean, last_tenant text, last_turn int, marks jsonb, moment timestamptz,
  OUT ids uuid[], OUT turns int[], OUT keys text[], OUT held int[], OUT has_limited_tenant boolean, OUT stopped_at text, OUT may_have_more boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  cursor_at timestamptz := coalesce((marks->last_tenant->>0)::timestamptz, '-infinity');
  cursor_id uuid := coalesce((marks->last_tenant->>1)::uuid, '00000000-0000-0000-0000-000000000000');
  tenants_with_cursor text[];
  alone text;
BEGIN
  may_have_more := false;
  -- The common case: only one tenant has ready runs.
  IF marks ? last_tenant THEN
    IF NOT EXISTS (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant < last_tenant
                   ORDER BY r.tenant, r.due_at, r.id LIMIT 1) THEN
      alone := last_tenant;
    END IF;
  ELSE
    SELECT r.tenant INTO alone FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane
    ORDER BY r.tenant, r.due_at, r.id LIMIT 1;
    cursor_at := '-infinity';
  END IF;
  IF alone IS NOT NULL
    AND NOT EXISTS (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > alone
                    ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
    AND NOT EXISTS (SELECT FROM tenants t WHERE t.name = alone) THEN
    SELECT array_agg(p.id), array_fill(0, ARRAY[count(*)::int]), array_agg(p.limit_key), array_agg(p.slot), false
    INTO ids, turns, keys, held, has_limited_tenant FROM (
      SELECT r.id, r.limit_key, r.slot FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = alone
        AND (r.due_at, r.id) > (cursor_at, cursor_id) AND sexton.is_for(r, tasks, ahead, moment)
      ORDER BY r.tenant, r.due_at, r.id LIMIT wanted FOR UPDATE OF r SKIP LOCKED) p;
    stopped_at := alone;
    RETURN;
  END IF;

  SELECT array_agg(k ORDER BY k) INTO tenants_with_cursor FROM jsonb_object_keys(marks) AS k;
  -- Only tenants with runs for this worker count, so that no turn is lost on the others. The first step is the tenant that was
  -- served last, if turns of its round are left. A tenant with a cursor is visited by name, because its first index entries are dead.
  -- Where the walk wraps around, it inserts a step for the tenant ''. submit rejects that name, but older databases may have runs of it.
  WITH RECURSIVE walk (tenant, wrapped, step, found, weight, room, is_served) AS (
    SELECT last_tenant, false, 0, (f.has_some AND t.is_served)::int, t.weight, t.room, f.has_some AND t.is_served FROM (
      SELECT last_turn > 0 AND EXISTS (
        SELECT FROM runs r
        WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = last_tenant
          AND (r.due_at, r.id) > (cursor_at, cursor_id) AND sexton.is_for(r, tasks, ahead, moment)
        ORDER BY r.tenant, r.due_at, r.id LIMIT 1) AS has_some
      OFFSET 0) f
    CROSS JOIN LATERAL sexton.standing(last_tenant, ahead) t
    UNION ALL
    SELECT n.tenant, n.wrapped, n.step + 1, n.found + (n.has_some AND t.is_served)::int, t.weight, t.room, n.has_some AND t.is_served FROM (
      SELECT coalesce(m.tenant, m.marked, CASE WHEN NOT m.wrapped THEN '' END) AS tenant,
        m.wrapped OR coalesce(m.tenant, m.marked) IS NULL AS wrapped, m.step, m.found,
        CASE WHEN m.tenant IS NULL AND m.marked IS NOT NULL THEN coalesce((
          SELECT true FROM runs r
          WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = m.marked
            AND (r.due_at, r.id) > ((marks->m.marked->>0)::timestamptz, (marks->m.marked->>1)::uuid) AND sexton.is_for(r, tasks, ahead, moment)
          ORDER BY r.tenant, r.due_at, r.id LIMIT 1), false)
        WHEN m.tenant IS NULL AND NOT m.wrapped THEN EXISTS (
          SELECT FROM runs r
          WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = ''
            AND (r.due_at, r.id) > (coalesce((marks->''->>0)::timestamptz, '-infinity'), coalesce((marks->''->>1)::uuid, '00000000-0000-0000-0000-000000000000'))
            AND sexton.is_for(r, tasks, ahead, moment)
          ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
        ELSE m.tenant IS NOT NULL END AS has_some
      FROM (
        SELECT k.wrapped, k.step, k.found, k.marked, CASE WHEN k.marked IS NULL THEN (
          SELECT r.tenant FROM runs r
          WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > k.tenant AND sexton.is_for(r, tasks, ahead, moment)
          ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
        ELSE (
          SELECT r.tenant FROM runs r
          WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > k.tenant AND r.tenant < k.marked
            AND sexton.is_for(r, tasks, ahead, moment)
          ORDER BY r.tenant, r.due_at, r.id LIMIT 1) END AS tenant
        FROM (
          SELECT w.*, CASE WHEN tenants_with_cursor IS NOT NULL THEN (SELECT min(u) FROM unnest(tenants_with_cursor) AS u WHERE u > w.tenant) END AS marked
          FROM walk w WHERE w.found < wanted OFFSET 0) k
        OFFSET 0) m
      OFFSET 0) n  -- each of these probes once
    CROSS JOIN LATERAL sexton.standing(n.tenant, ahead) t
    WHERE n.tenant IS NOT NULL AND NOT (n.wrapped AND (n.tenant > last_tenant OR (n.tenant = last_tenant AND last_turn > 0)))
  ), served AS MATERIALIZED (
    SELECT w.tenant, w.step, w.weight, w.room, coalesce((marks->w.tenant->>0)::timestamptz, '-infinity') AS cursor_at,
      coalesce((marks->w.tenant->>1)::uuid, '00000000-0000-0000-0000-000000000000') AS cursor_id,
      CASE WHEN w.step = 0 THEN least(last_turn, w.weight) ELSE 0 END AS turns_used
    FROM walk w WHERE w.is_served
  ), ranked AS (
    SELECT s.*, sum(s.weight) OVER () AS total, sum(s.turns_used) OVER () AS turns_used_total,
      sum(s.weight) OVER (ORDER BY s.step) - s.weight AS before, sum(s.weight - s.turns_used) OVER (ORDER BY s.step) - (s.weight - s.turns_used) AS first_before
    FROM served s
  ), shares AS MATERIALIZED (
    SELECT r.tenant, r.step, r.weight, r.turns_used, r.room, r.cursor_at, r.cursor_id,
      least(r.room, sexton.dealt(wanted, r.weight, r.turns_used, r.before, r.first_before, r.total, r.turns_used_total)) AS share
    FROM ranked r
  ), first_deal AS MATERIALIZED (
    SELECT s.tenant, s.step, s.weight, s.turns_used, s.room, s.share, p.id, p.limit_key, p.slot, (row_number() OVER (PARTITION BY s.step ORDER BY p.due_at, p.id))::int AS nth
    FROM shares s CROSS JOIN LATERAL (
      SELECT r.id, r.due_at, r.limit_key, r.slot FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = s.tenant
        AND (r.due_at, r.id) > (s.cursor_at, s.cursor_id) AND sexton.is_for(r, tasks, ahead, moment)
      ORDER BY r.tenant, r.due_at, r.id LIMIT s.share FOR UPDATE OF r SKIP LOCKED) p
    WHERE s.share > 0
  ), used_all_turns AS MATERIALIZED (
    -- Unused turns go to the tenants that used all of theirs. The distribution starts again from the beginning, so each tenant
    -- gets its first runs again. The offset below skips those, which are already locked above.
    SELECT h.tenant, h.step, h.weight, h.turns_used, h.room, h.share, h.cursor_at, h.cursor_id,
      least(h.room, sexton.dealt(h.count, h.weight, h.turns_used, h.before, h.first_before, h.total, h.turns_used_total)) - h.share AS more
    FROM (
      SELECT s.*, (wanted - (SELECT count(*) FROM first_deal) + sum(s.share) OVER ())::int AS count,
        sum(s.weight) OVER () AS total, sum(s.turns_used) OVER () AS turns_used_total,
        sum(s.weight) OVER (ORDER BY s.step) - s.weight AS before, sum(s.weight - s.turns_used) OVER (ORDER BY s.step) - (s.weight - s.turns_used) AS first_before
      FROM shares s LEFT JOIN (SELECT f.step, count(*) AS count FROM first_deal f GROUP BY f.step) took ON took.step = s.step
      WHERE (SELECT count(*) FROM first_deal) < wanted AND coalesce(took.count, 0) = s.share AND (s.room IS NULL OR s.room > s.share)) h
  ), second_deal AS (
    SELECT h.tenant, h.step, h.weight, h.turns_used, h.room, p.id, p.limit_key, p.slot, h.share + (row_number() OVER (PARTITION BY h.step ORDER BY p.due_at, p.id))::int AS nth
    FROM used_all_turns h CROSS JOIN LATERAL (
      SELECT r.id, r.due_at, r.limit_key, r.slot FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = h.tenant
        AND (r.due_at, r.id) > (h.cursor_at, h.cursor_id) AND sexton.is_for(r, tasks, ahead, moment)
      ORDER BY r.tenant, r.due_at, r.id OFFSET h.share LIMIT h.more FOR UPDATE OF r SKIP LOCKED) p
    WHERE h.more > 0
  ), picked AS (
    SELECT p.id, p.tenant, p.limit_key, p.slot, p.room IS NOT NULL AS is_tenant_limited, (p.turns_used + p.nth) % p.weight AS turn,
      (p.turns_used + p.nth - 1) / p.weight AS round, p.step, p.nth
    FROM (SELECT id, tenant, limit_key, slot, room, turns_used, nth, weight, step FROM first_deal
          UNION ALL SELECT id, tenant, limit_key, slot, room, turns_used, nth, weight, step FROM second_deal) p
    ORDER BY round, step, nth LIMIT wanted
  )
  SELECT array_agg(p.id), array_agg(p.turn), array_agg(p.limit_key), array_agg(p.slot), coalesce(bool_or(p.is_tenant_limited), false), coalesce((array_agg(p.tenant))[count(*)], (SELECT w.tenant FROM walk w ORDER BY w.step DESC LIMIT 1)),
    -- Some tenants had fewer runs than turns in the end, or another session has locked them, and not all were seen.
    count(*) < wanted AND (count(*) > 1 OR (SELECT count(*) FROM served) >= wanted)
  INTO ids, turns, keys, held, has_limited_tenant, stopped_at, may_have_more FROM picked p;
END
$$;
