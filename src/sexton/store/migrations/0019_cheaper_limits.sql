-- Limits cost a claim less (docs/adr/020): what was seen of a run when it was picked is handed on instead of being looked up again, slots
-- beyond a lowered limit are looked for key by key, never through those of all keys, and a report wakes nobody where nobody waits. And no two
-- claims wait for each other's buckets.

-- Whose turn it is: up to `wanted` ready runs of one queue and lane, locked, in the order they are to start.
--
-- Tenants are walked in a circle by a loose index scan, from where this worker's last claim stopped: each has `weight` turns in a
-- round, and what one does not need the others get. So the cost follows what is taken, never how many tenants or runs wait.
-- `turn` is how many turns of its round the tenant has had, 0 for all: the next claim goes on from there. domain/fairness.py is
-- the same in Python, and what tests compare this with.
--
-- `marks` says, for tenants of whom much was taken, up to where: {tenant: [due_at, id]}. What is behind a mark is not looked at. It is
-- only dead index entries, as a rule, and to walk through those of 100,000 runs takes longer than the claim.
--
-- What decides whether they may start is told with them: the keys of their limits, the slots they hold, whether any of their tenants has a limit.
DROP FUNCTION sexton.pick_runs(text, smallint, text[], int, boolean, text, int, jsonb, timestamptz);
CREATE FUNCTION sexton.pick_runs(
  worker_queue text, worker_lane smallint, tasks text[], wanted int, ahead boolean, last_tenant text, last_turn int, marks jsonb, moment timestamptz,
  OUT ids uuid[], OUT turns int[], OUT keys text[], OUT held int[], OUT has_limited_tenant boolean, OUT stopped_at text, OUT may_have_more boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  mark_at timestamptz := coalesce((marks->last_tenant->>0)::timestamptz, '-infinity');
  mark_id uuid := coalesce((marks->last_tenant->>1)::uuid, '00000000-0000-0000-0000-000000000000');
  marked text[];
  alone text;
BEGIN
  may_have_more := false;
  -- Nobody to share with: most of the time, for most.
  IF marks ? last_tenant THEN
    IF NOT EXISTS (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant < last_tenant
                   ORDER BY r.tenant, r.due_at, r.id LIMIT 1) THEN
      alone := last_tenant;
    END IF;
  ELSE
    SELECT r.tenant INTO alone FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane
    ORDER BY r.tenant, r.due_at, r.id LIMIT 1;
    mark_at := '-infinity';
  END IF;
  IF alone IS NOT NULL
    AND NOT EXISTS (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > alone
                    ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
    AND NOT EXISTS (SELECT FROM tenants t WHERE t.name = alone) THEN
    SELECT array_agg(p.id), array_fill(0, ARRAY[count(*)::int]), array_agg(p.limit_key), array_agg(p.slot), false
    INTO ids, turns, keys, held, has_limited_tenant FROM (
      SELECT r.id, r.limit_key, r.slot FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = alone
        AND (r.due_at, r.id) > (mark_at, mark_id) AND sexton.is_for(r, tasks, ahead, moment)
      ORDER BY r.tenant, r.due_at, r.id LIMIT wanted FOR UPDATE OF r SKIP LOCKED) p;
    stopped_at := alone;
    RETURN;
  END IF;

  SELECT array_agg(k ORDER BY k) INTO marked FROM jsonb_object_keys(marks) AS k;
  -- Only those count who have something for this worker, so that no turn is lost on the others. The first step is the tenant that was
  -- served last, if turns of its round are left. A marked tenant is stepped on by name, for its first entries are dead; the step
  -- before the second half of the circle is on nobody.
  WITH RECURSIVE walk (tenant, wrapped, step, found, weight, room, is_served) AS (
    SELECT last_tenant, false, 0, (f.has_some AND t.is_served)::int, t.weight, t.room, f.has_some AND t.is_served FROM (
      SELECT last_turn > 0 AND EXISTS (
        SELECT FROM runs r
        WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = last_tenant
          AND (r.due_at, r.id) > (mark_at, mark_id) AND sexton.is_for(r, tasks, ahead, moment)
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
          SELECT w.*, CASE WHEN marked IS NOT NULL THEN (SELECT min(u) FROM unnest(marked) AS u WHERE u > w.tenant) END AS marked
          FROM walk w WHERE w.found < wanted OFFSET 0) k
        OFFSET 0) m
      OFFSET 0) n  -- each of these probes once
    CROSS JOIN LATERAL sexton.standing(n.tenant, ahead) t
    WHERE n.tenant IS NOT NULL AND NOT (n.wrapped AND (n.tenant > last_tenant OR (n.tenant = last_tenant AND last_turn > 0)))
  ), served AS MATERIALIZED (
    SELECT w.tenant, w.step, w.weight, w.room, coalesce((marks->w.tenant->>0)::timestamptz, '-infinity') AS mark_at,
      coalesce((marks->w.tenant->>1)::uuid, '00000000-0000-0000-0000-000000000000') AS mark_id,
      CASE WHEN w.step = 0 THEN least(last_turn, w.weight) ELSE 0 END AS had
    FROM walk w WHERE w.is_served
  ), ranked AS (
    SELECT s.*, sum(s.weight) OVER () AS total, sum(s.had) OVER () AS had_total,
      sum(s.weight) OVER (ORDER BY s.step) - s.weight AS before, sum(s.weight - s.had) OVER (ORDER BY s.step) - (s.weight - s.had) AS first_before
    FROM served s
  ), shares AS MATERIALIZED (
    SELECT r.tenant, r.step, r.weight, r.had, r.room, r.mark_at, r.mark_id,
      least(r.room, sexton.dealt(wanted, r.weight, r.had, r.before, r.first_before, r.total, r.had_total)) AS share
    FROM ranked r
  ), first AS MATERIALIZED (
    SELECT s.tenant, s.step, s.weight, s.had, s.room, s.share, p.id, p.limit_key, p.slot, (row_number() OVER (PARTITION BY s.step ORDER BY p.due_at, p.id))::int AS nth
    FROM shares s CROSS JOIN LATERAL (
      SELECT r.id, r.due_at, r.limit_key, r.slot FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = s.tenant
        AND (r.due_at, r.id) > (s.mark_at, s.mark_id) AND sexton.is_for(r, tasks, ahead, moment)
      ORDER BY r.tenant, r.due_at, r.id LIMIT s.share FOR UPDATE OF r SKIP LOCKED) p
    WHERE s.share > 0
  ), hungry AS MATERIALIZED (
    -- What others left is dealt to those who took all they were offered: from the start, so that what they had comes out again.
    -- Their own rows, locked above, come first: that is the offset below.
    SELECT h.tenant, h.step, h.weight, h.had, h.room, h.share, h.mark_at, h.mark_id,
      least(h.room, sexton.dealt(h.count, h.weight, h.had, h.before, h.first_before, h.total, h.had_total)) - h.share AS more
    FROM (
      SELECT s.*, (wanted - (SELECT count(*) FROM first) + sum(s.share) OVER ())::int AS count,
        sum(s.weight) OVER () AS total, sum(s.had) OVER () AS had_total,
        sum(s.weight) OVER (ORDER BY s.step) - s.weight AS before, sum(s.weight - s.had) OVER (ORDER BY s.step) - (s.weight - s.had) AS first_before
      FROM shares s LEFT JOIN (SELECT f.step, count(*) AS count FROM first f GROUP BY f.step) took ON took.step = s.step
      WHERE (SELECT count(*) FROM first) < wanted AND coalesce(took.count, 0) = s.share AND (s.room IS NULL OR s.room > s.share)) h
  ), second AS (
    SELECT h.tenant, h.step, h.weight, h.had, h.room, p.id, p.limit_key, p.slot, h.share + (row_number() OVER (PARTITION BY h.step ORDER BY p.due_at, p.id))::int AS nth
    FROM hungry h CROSS JOIN LATERAL (
      SELECT r.id, r.due_at, r.limit_key, r.slot FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = h.tenant
        AND (r.due_at, r.id) > (h.mark_at, h.mark_id) AND sexton.is_for(r, tasks, ahead, moment)
      ORDER BY r.tenant, r.due_at, r.id OFFSET h.share LIMIT h.more FOR UPDATE OF r SKIP LOCKED) p
    WHERE h.more > 0
  ), picked AS (
    SELECT p.id, p.tenant, p.limit_key, p.slot, p.room IS NOT NULL AS is_tenant_limited, (p.had + p.nth) % p.weight AS turn,
      (p.had + p.nth - 1) / p.weight AS round, p.step, p.nth
    FROM (SELECT id, tenant, limit_key, slot, room, had, nth, weight, step FROM first
          UNION ALL SELECT id, tenant, limit_key, slot, room, had, nth, weight, step FROM second) p
    ORDER BY round, step, nth LIMIT wanted
  )
  SELECT array_agg(p.id), array_agg(p.turn), array_agg(p.limit_key), array_agg(p.slot), coalesce(bool_or(p.is_tenant_limited), false), coalesce((array_agg(p.tenant))[count(*)], (SELECT w.tenant FROM walk w ORDER BY w.step DESC LIMIT 1)),
    -- Some had less than they were offered at last, or are held by a rival, and not all were seen.
    count(*) < wanted AND (count(*) > 1 OR (SELECT count(*) FROM served) >= wanted)
  INTO ids, turns, keys, held, has_limited_tenant, stopped_at, may_have_more FROM picked p;
END
$$;

-- Takes a free slot for each run, or makes one while there are fewer than `maxes` says; null where there is none. The numbers may have
-- been lowered: only those are given out that leave the total within the limit, whoever else takes one at the same time.
CREATE OR REPLACE FUNCTION sexton.take_slots(keys text[], maxes int[], run_ids uuid[]) RETURNS int[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  taken int[];
  places int[];
  is_disputed boolean;
BEGIN
  -- Those that are there and free: most of the time, all there is to do. Each is written where it was locked. What is beyond the limit is
  -- looked for key by key (OFFSET 0): as a join, planned while there were few, it went through the slots of all keys.
  WITH asked AS MATERIALIZED (
    SELECT k.takers, ARRAY(
      SELECT o.ctid FROM slots o WHERE o.key = k.key AND o.run_id IS NULL AND o.n <= k.max
      ORDER BY o.n LIMIT cardinality(k.takers) FOR UPDATE SKIP LOCKED) AS free
    FROM (
      SELECT w.key, max(w.max) AS max, array_agg(w.ord::int) AS takers
      FROM unnest(keys, maxes) WITH ORDINALITY AS w(key, max, ord) WHERE w.key IS NOT NULL GROUP BY w.key) k
    WHERE NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n > k.max AND o.run_id IS NOT NULL OFFSET 0)
  ), written AS (
    UPDATE slots s SET run_id = run_ids[g.ord]
    FROM (SELECT unnest(a.takers) AS ord, unnest(a.free) AS place FROM asked a OFFSET 0) g
    WHERE s.ctid = g.place AND s.run_id IS NULL RETURNING s.n, g.ord
  )
  SELECT array_agg(w.n ORDER BY w.ord), array_agg(w.ord ORDER BY w.ord) INTO taken, places FROM written w;
  IF cardinality(taken) = cardinality(run_ids) THEN
    RETURN taken;
  END IF;
  SELECT array_agg(t.n ORDER BY t.ord) INTO taken FROM (
    SELECT max(w.n) AS n, w.ord FROM (
      SELECT unnest(taken) AS n, unnest(places) AS ord UNION ALL SELECT NULL, generate_subscripts(run_ids, 1)) w GROUP BY w.ord) t;

  FOR attempt IN 1..3 LOOP
    EXIT WHEN cardinality(array_remove(taken, NULL)) = cardinality(array_remove(keys, NULL));
    WITH asked AS MATERIALIZED (
      SELECT k.key, k.takers, h.highest, ARRAY(
        SELECT o.n FROM slots o WHERE o.key = k.key AND o.run_id IS NULL AND o.n <= h.highest
        ORDER BY o.n LIMIT cardinality(k.takers) FOR UPDATE SKIP LOCKED) AS free
      FROM (
        SELECT w.key, max(w.max) AS max, array_agg(w.run_id ORDER BY w.ord) AS takers
        FROM unnest(keys, maxes, run_ids, taken) WITH ORDINALITY AS w(key, max, run_id, n, ord)
        WHERE w.key IS NOT NULL AND w.n IS NULL GROUP BY w.key) k
      CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n > k.max AND o.run_id IS NOT NULL OFFSET 0) THEN k.max
          ELSE (SELECT coalesce(max(m), 0) FROM generate_series(1, k.max) AS m
                WHERE m + (SELECT count(*) FROM slots o WHERE o.key = k.key AND o.n > m AND o.run_id IS NOT NULL) <= k.max) END AS highest
        OFFSET 0) h
    ), given AS MATERIALIZED (
      SELECT g.key, g.n, g.run_id FROM (
        SELECT a.key, t.run_id, a.highest, CASE WHEN t.nth <= cardinality(a.free) THEN a.free[t.nth]
          ELSE (SELECT coalesce(max(o.n), 0) FROM slots o WHERE o.key = a.key) + t.nth::int - cardinality(a.free) END AS n
        FROM asked a CROSS JOIN LATERAL unnest(a.takers) WITH ORDINALITY AS t(run_id, nth) OFFSET 0) g
      WHERE g.n <= g.highest
    ), written AS (
      INSERT INTO slots AS o (key, n, run_id) SELECT g.key, g.n, g.run_id FROM given g ORDER BY g.key, g.n
      ON CONFLICT (key, n) DO UPDATE SET run_id = excluded.run_id WHERE o.run_id IS NULL RETURNING o.run_id, o.n
    ), answers AS (
      SELECT w.run_id, max(w.n) AS n, max(w.ord) AS ord FROM (
        SELECT r.run_id, r.n, r.ord FROM unnest(run_ids, taken) WITH ORDINALITY AS r(run_id, n, ord)
        UNION ALL SELECT w.run_id, w.n, NULL FROM written w) w
      GROUP BY w.run_id
    )
    SELECT array_agg(a.n ORDER BY a.ord), (SELECT count(*) FROM given) > (SELECT count(*) FROM written) INTO taken, is_disputed FROM answers a;
    EXIT WHEN NOT is_disputed;  -- else a rival has made the same slot, and there may be another
  END LOOP;
  RETURN taken;
END
$$;

-- One token for each of these keys, as far as their buckets go. A claim that holds some already does not wait for others: two that want them in
-- opposite order would wait for each other (rule 16). What it does not get is parked, and looked at again.
DROP FUNCTION sexton.take_tokens(text[], timestamptz);
CREATE FUNCTION sexton.take_tokens(keys text[], moment timestamptz, waits boolean) RETURNS boolean[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  granted boolean[];
  locked text[];
BEGIN
  -- Lock, then look: buckets are shared by all workers.
  IF waits THEN
    locked := ARRAY(SELECT l.key FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE);
  ELSE
    locked := ARRAY(SELECT l.key FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE SKIP LOCKED);
  END IF;
  WITH wanted AS (
    SELECT w.key, w.ord, row_number() OVER (PARTITION BY w.key ORDER BY w.ord) AS nth FROM unnest(keys) WITH ORDINALITY AS w(key, ord)
  ), buckets AS MATERIALIZED (
    SELECT l.key, sexton.tokens(l.bucket_at, l.count / l.per_s, l.burst, moment) AS tokens
    FROM limits l WHERE l.key = ANY (locked)
  ), drawn AS (
    UPDATE limits l SET bucket_at = sexton.drawn(l.bucket_at, l.count / l.per_s, l.burst, moment, least(b.tokens, w.wanted)::int)
    FROM buckets b JOIN (SELECT key, count(*) AS wanted FROM wanted GROUP BY key) w ON w.key = b.key
    WHERE l.key = b.key AND b.tokens > 0
  )
  SELECT array_agg(coalesce(w.nth <= b.tokens, false) ORDER BY w.ord) INTO granted FROM wanted w LEFT JOIN buckets b ON b.key = w.key;
  RETURN granted;
END
$$;

-- Which of these runs, picked and locked by a claim, their limits let through (null: all), and with which slots. What the limit of its key keeps
-- back is parked; what its tenant's keeps back stays ready, and the tenant is passed over until it has room. `picked_keys` and `held` are what
-- sexton.pick_runs saw: the keys of their limits, and the slots that the first in line of ordered keys have already. `waits`: sexton.take_tokens.
DROP FUNCTION sexton.admit_runs(uuid[], timestamptz);
CREATE FUNCTION sexton.admit_runs(
  ids uuid[], picked_keys text[], held int[], has_limited_tenant boolean, waits boolean, moment timestamptz, OUT admitted boolean[], OUT slots int[], OUT tenant_slots int[], OUT parked int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  keys text[];
  maxes int[];
  tenant_keys text[];
  tenant_maxes int[];
  rated text[];
  granted boolean[];
  refused int[];
BEGIN
  SELECT array_agg(a.key), array_agg(a.max), array_agg(a.rated) INTO keys, maxes, rated FROM (
    SELECT CASE WHEN l.running IS NOT NULL AND p.slot IS NULL THEN l.key END AS key, l.running AS max,
      CASE WHEN l.count IS NOT NULL THEN l.key END AS rated
    FROM unnest(picked_keys, held) WITH ORDINALITY AS p(key, slot, ord)
    LEFT JOIN LATERAL (SELECT o.key, o.running, o.count FROM limits o WHERE o.key = p.key LIMIT 1) l ON true
    ORDER BY p.ord) a;
  IF has_limited_tenant THEN
    SELECT array_agg(a.key), array_agg(a.max) INTO tenant_keys, tenant_maxes FROM (
      SELECT CASE WHEN t.running_max IS NOT NULL THEN '@tenant:' || t.name END AS key, t.running_max AS max
      FROM unnest(ids) WITH ORDINALITY AS p(id, ord)
      CROSS JOIN LATERAL (SELECT o.tenant FROM runs o WHERE o.id = p.id LIMIT 1) r
      LEFT JOIN LATERAL (SELECT o.name, o.running_max FROM tenants o WHERE o.name = r.tenant LIMIT 1) t ON true
      ORDER BY p.ord) a;
  END IF;

  IF array_remove(tenant_keys, NULL) <> '{}' THEN
    tenant_slots := sexton.take_slots(tenant_keys, tenant_maxes, ids);
    SELECT array_agg(CASE WHEN tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL THEN keys[n] END ORDER BY n),
      array_agg(CASE WHEN tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL THEN rated[n] END ORDER BY n)
    INTO keys, rated FROM generate_subscripts(ids, 1) AS n;
  END IF;
  IF array_remove(keys, NULL) <> '{}' THEN
    slots := sexton.take_slots(keys, maxes, ids);
    SELECT array_agg(CASE WHEN keys[n] IS NULL OR slots[n] IS NOT NULL THEN rated[n] END ORDER BY n)
    INTO rated FROM generate_subscripts(ids, 1) AS n;
  END IF;
  IF cardinality(array_remove(slots, NULL)) = cardinality(ids) AND tenant_slots IS NULL AND array_remove(rated, NULL) = '{}' THEN
    RETURN;  -- all of them: there is nothing to sort out
  END IF;
  IF array_remove(rated, NULL) <> '{}' THEN
    granted := sexton.take_tokens(rated, moment, waits);
  END IF;

  SELECT array_agg((tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL) AND (keys[n] IS NULL OR slots[n] IS NOT NULL)
                   AND (rated[n] IS NULL OR granted[n]) ORDER BY n)
  INTO admitted FROM generate_subscripts(ids, 1) AS n;
  SELECT array_agg(n) INTO refused FROM generate_subscripts(ids, 1) AS n WHERE NOT admitted[n];
  IF refused IS NOT NULL THEN
    PERFORM sexton.give_back(array_agg(keys[n]) || array_agg(tenant_keys[n]), array_agg(slots[n]) || array_agg(tenant_slots[n]),
                             array_agg(ids[n]) || array_agg(ids[n])) FROM unnest(refused) AS n;
    UPDATE runs r SET state = 'parked'
    WHERE r.id = ANY (ARRAY(SELECT ids[n] FROM unnest(refused) AS n WHERE tenant_keys[n] IS NULL OR tenant_slots[n] IS NOT NULL));
    GET DIAGNOSTICS parked = ROW_COUNT;
  END IF;
  SELECT array_agg(coalesce(held[n], slots[n]) ORDER BY n) INTO slots FROM generate_subscripts(ids, 1) AS n;
END
$$;

-- The claim: lanes in strict order over all queues of the worker, queues in the order given, tenants fairly inside (sexton.pick_runs),
-- limits respected. What a limit keeps back is parked, outside the index that claims read, and the next in line gets its chance.
-- `turns` says where the last claim stopped: {queue: {lane: [tenant, turn, marks, only]}}; where there is too little ahead of the marks, what is
-- behind them is looked at as well, unless `only` is true. A worker that was declared dead claims nothing. Nothing here may be planned as a
-- nested loop over two lists, which enable_material would make look cheap.
CREATE OR REPLACE FUNCTION sexton.claim_runs(
  worker uuid, queues text[], tasks text[], wanted int, grace_s float8, ahead boolean, turns jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (
  id uuid, job_id uuid, worker_id uuid, token bigint, attempt smallint, lost_count smallint, at_most_once boolean, seq int, origin text,
  deadline_left_s float8, policy jsonb, job_version int, fire_at timestamptz, due_at timestamptz, claimed_at timestamptz, timeout_s float8,
  queue text, tenant text, lane smallint, task text, name text, payload jsonb, idempotency_key text, completed_by uuid, trace text, turn int, is_limited boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET enable_material = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  flow record;
  picked record;
  admitted boolean[];
  taken_slots int[];
  taken_tenant_slots int[];
  parked int;
  last_tenant text;
  last_turn int;
  marks jsonb;
  is_ahead_only boolean;
  has_admitted boolean := false;
  left_to_take int := wanted;
  left_to_look int := 100;
  allowed int;
  got int;
BEGIN
  IF NOT EXISTS (SELECT FROM workers w WHERE w.id = worker AND w.lost_at IS NULL) THEN
    RETURN;
  END IF;
  FOR flow IN
    SELECT q.queue, l.lane, t.last, known.release_rate
    FROM unnest(queues) WITH ORDINALITY AS q(queue, ord) CROSS JOIN unnest(ARRAY[0, 1, 2, 3]::smallint[]) AS l(lane)
    CROSS JOIN LATERAL (SELECT f.last, f.last->2->(f.last->>0) AS mark FROM (SELECT turns->q.queue->l.lane::text AS last) f) AS t
    LEFT JOIN LATERAL (SELECT o.paused_at, o.release_rate FROM queues o WHERE o.name = q.queue LIMIT 1) AS known ON true
    -- A bare EXISTS might be answered by reading all that is ready.
    WHERE known.paused_at IS NULL AND coalesce(
      t.mark IS NOT NULL AND (t.last->>3)::boolean OR NULL,
      (SELECT true FROM runs r WHERE t.mark IS NOT NULL AND r.state = 'ready' AND r.queue = q.queue AND r.lane = l.lane AND r.tenant = t.last->>0
         AND (r.due_at, r.id) > ((t.mark->>0)::timestamptz, (t.mark->>1)::uuid) ORDER BY r.tenant, r.due_at, r.id LIMIT 1),
      (SELECT true FROM runs r WHERE r.state = 'ready' AND r.queue = q.queue AND r.lane = l.lane ORDER BY r.tenant, r.due_at, r.id LIMIT 1))
    ORDER BY l.lane, q.ord
  LOOP
    allowed := left_to_take;
    IF flow.release_rate IS NOT NULL THEN
      SELECT least(allowed, sexton.tokens(o.bucket_at, o.release_rate, o.release_burst, moment)) INTO allowed
      FROM queues o WHERE o.name = flow.queue FOR UPDATE;
    END IF;
    last_tenant := coalesce(flow.last->>0, '');
    last_turn := coalesce((flow.last->>1)::int, 0);
    marks := flow.last->2;
    is_ahead_only := coalesce((flow.last->>3)::boolean, false);
    WHILE allowed > 0 LOOP
      SELECT * INTO picked FROM sexton.pick_runs(
        flow.queue, flow.lane, tasks, allowed, ahead, last_tenant, last_turn, marks, moment);
      IF picked.ids IS NULL AND picked.may_have_more AND left_to_look > 0 THEN
        -- All whose turn it is are held by a rival: on to those behind them.
        left_to_look := left_to_look - 1;
        last_tenant := picked.stopped_at;
        last_turn := 0;
        CONTINUE;
      END IF;
      IF picked.ids IS NULL THEN
        EXIT WHEN marks IS NULL OR is_ahead_only;
        marks := NULL;
        CONTINUE;
      END IF;
      admitted := NULL; taken_slots := NULL; taken_tenant_slots := NULL; parked := 0;
      IF array_remove(picked.keys, NULL) <> '{}' OR picked.has_limited_tenant THEN
        SELECT a.admitted, a.slots, a.tenant_slots, a.parked INTO admitted, taken_slots, taken_tenant_slots, parked
        FROM sexton.admit_runs(picked.ids, picked.keys, picked.held, picked.has_limited_tenant, NOT has_admitted, moment) a;
        has_admitted := true;
      END IF;
      RETURN QUERY
      WITH claimed AS (
        UPDATE runs r SET
          state = 'running', worker_id = worker, token = r.token + 1, attempt = r.attempt + 1, claimed_at = moment,
          must_end_at = moment + make_interval(secs => least(r.timeout_s, extract(epoch FROM r.deadline_at - moment)) + grace_s),
          slot = taken_slots[p.ord], tenant_slot = taken_tenant_slots[p.ord]
        FROM generate_series(1, cardinality(picked.ids)) AS p(ord)
        WHERE r.id = ANY (picked.ids) AND r.id = picked.ids[p.ord] AND admitted[p.ord] IS NOT FALSE  -- one scan of the primary key, not one for each
        RETURNING r.*, picked.turns[p.ord] AS turn, p.ord
      )
      SELECT c.id, c.job_id, c.worker_id, c.token, c.attempt, c.lost_count, c.at_most_once, c.seq, c.origin,
        extract(epoch FROM c.deadline_at - moment)::float8,
        CASE WHEN c.limit_key IS NULL THEN j.policy ELSE nullif(j.policy - 'limit', '{}') END, c.job_version, c.fire_at, c.due_at, c.claimed_at, c.timeout_s::float8,
        c.queue, c.tenant, c.lane, c.task, j.name, j.payload, j.idempotency_key, k.execution_id, j.trace, c.turn, c.limit_key IS NOT NULL OR c.tenant_slot IS NOT NULL
      FROM claimed c
      LEFT JOIN LATERAL (SELECT * FROM jobs WHERE jobs.id = c.job_id LIMIT 1) j ON true
      LEFT JOIN LATERAL (
        SELECT execution_id FROM idempotency_keys k  -- one that expired may by now belong to another job
        WHERE j.idempotency_key IS NOT NULL AND k.tenant = c.tenant AND k.key = j.idempotency_key AND k.job_id = c.job_id
          AND k.completed_at IS NOT NULL LIMIT 1
      ) k ON true
      ORDER BY c.ord;
      GET DIAGNOSTICS got = ROW_COUNT;
      left_to_take := left_to_take - got;
      allowed := allowed - got;
      IF flow.release_rate IS NOT NULL THEN
        UPDATE queues o SET bucket_at = sexton.drawn(o.bucket_at, o.release_rate, o.release_burst, moment, got) WHERE o.name = flow.queue;
      END IF;
      -- Those behind what was parked get their chance, and no lower lane gets what this one still has, be it behind a mark.
      EXIT WHEN coalesce(parked, 0) = 0 AND NOT picked.may_have_more AND (marks IS NULL OR is_ahead_only OR cardinality(picked.ids) >= allowed + got);
      IF cardinality(picked.ids) < allowed + got AND NOT is_ahead_only THEN
        marks := NULL;
      END IF;
      last_tenant := picked.stopped_at;
      last_turn := picked.turns[cardinality(picked.turns)];
    END LOOP;
    EXIT WHEN left_to_take <= 0;
  END LOOP;
END
$$;

-- The one way a run ends or goes back, as in 0014 but for who is woken.
CREATE OR REPLACE FUNCTION sexton.finish_runs(reports jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (run_id uuid, execution_id uuid, state text)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  seed bigint := sexton.dice();  -- for all ids of this call
  run_ids uuid[];
  execution_ids uuid[];
  states text[];
  freed_keys text[];
  awaited_keys text[];
  woken_queues text[];
BEGIN
  PERFORM sexton.ensure_partitions(moment);
  WITH reported AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(reports) AS x (
      run_id uuid, worker_id uuid, token bigint, next text, status text, ending text, started_s float8, took_s float8,
      delay_s float8, spends text, reason text, error jsonb, result jsonb, progress jsonb, output text, permanent boolean,
      replay_s float8, key text)
  ), ended AS (
    DELETE FROM runs r USING reported x
    WHERE r.id = ANY (ARRAY(SELECT reported.run_id FROM reported WHERE reported.run_id IS NOT NULL))
      AND r.id = x.run_id AND r.token = x.token AND r.worker_id IS NOT DISTINCT FROM x.worker_id
      AND (x.next = 'end' OR r.cancel_requested_at IS NOT NULL)
    RETURNING r.id, r.job_id, r.worker_id, r.fire_at, r.due_at, r.claimed_at, r.token, r.job_version, r.seq, r.attempt, r.lost_count,
      r.lane + r.aged AS lane, r.origin, r.queue, r.tenant, r.task, x.status, x.started_s, x.took_s, x.reason, x.error, x.result, x.progress, x.output,
      x.permanent, x.replay_s, x.key, NULL::text AS state, r.limit_key, r.slot, r.tenant_slot,
      CASE WHEN r.cancel_requested_at IS NULL OR x.ending = 'completed' THEN x.ending ELSE 'cancelled' END AS ending
  ), returning_runs AS MATERIALIZED (
    SELECT DISTINCT ON (r.id) r.ctid AS place, r.id, r.job_id, r.worker_id, r.fire_at, r.due_at, r.claimed_at, r.token, r.job_version, r.seq, r.attempt, r.lost_count,
      r.lane + r.aged AS lane, r.origin, r.queue, r.tenant, r.task, x.status, x.started_s, x.took_s, x.reason, x.error, x.result, x.progress, x.output,
      x.permanent, x.replay_s, x.key, x.delay_s, x.spends, r.limit_key, r.tenant_slot,
      r.slot IS NOT NULL AND EXISTS (SELECT FROM limits l WHERE l.key = r.limit_key AND l.ordered) AS keeps_slot, r.slot
    FROM reported x CROSS JOIN LATERAL (SELECT o.ctid, o.* FROM runs o WHERE o.id = x.run_id LIMIT 1) r  -- by the primary key, each
    WHERE x.next = 'again' AND r.token = x.token AND r.worker_id = x.worker_id
  ), returned AS (
    UPDATE runs r SET
      state = CASE WHEN coalesce(b.delay_s, 0) <= 0 THEN 'ready' ELSE 'waiting' END,
      due_at = CASE WHEN b.delay_s > 0 OR b.spends = 'attempt' THEN moment + make_interval(secs => b.delay_s) ELSE r.due_at END,
      attempt = r.attempt - (b.spends <> 'attempt')::int,
      lost_count = r.lost_count + (b.spends = 'loss')::int,
      start_by = CASE WHEN b.status = 'released' THEN r.start_by END,  -- once started, in time; a hand-back is no start
      worker_id = NULL, claimed_at = NULL, must_end_at = NULL,
      lane = r.lane + r.aged, aged = 0, tenant_slot = NULL, slot = CASE WHEN b.keeps_slot THEN r.slot END
    FROM returning_runs b
    WHERE r.ctid = b.place AND r.id = b.id AND r.token = b.token AND r.worker_id = b.worker_id AND r.cancel_requested_at IS NULL
    RETURNING b.id, b.job_id, b.worker_id, b.fire_at, b.due_at, b.claimed_at, b.token, b.job_version, b.seq, b.attempt, b.lost_count,
      b.lane, b.origin, b.queue, b.tenant, b.task, b.status, b.started_s, b.took_s, b.reason, b.error, b.result, b.progress, b.output,
      b.permanent, b.replay_s, b.key, r.state, b.limit_key, CASE WHEN NOT b.keeps_slot THEN b.slot END AS slot, b.tenant_slot
  ), tries AS MATERIALIZED (
    SELECT sexton.uuid7(t.micros, hashint8extended(t.micros, seed)) AS execution_id, t.* FROM (
      SELECT micros + row_number() OVER () AS micros, u.* FROM (
        SELECT e.id, e.job_id, e.worker_id, e.fire_at, e.due_at, e.claimed_at, e.token, e.job_version, e.seq, e.attempt, e.lost_count,
          e.lane, e.origin, e.queue, e.tenant, e.task, e.status, e.started_s, e.took_s, e.reason, e.error, e.result, e.progress,
          e.output, e.permanent, e.replay_s, e.key, e.ending, e.state, e.limit_key, e.slot, e.tenant_slot
        FROM ended e
        UNION ALL
        SELECT b.id, b.job_id, b.worker_id, b.fire_at, b.due_at, b.claimed_at, b.token, b.job_version, b.seq, b.attempt, b.lost_count,
          b.lane, b.origin, b.queue, b.tenant, b.task, b.status, b.started_s, b.took_s, b.reason, b.error, b.result, b.progress,
          b.output, b.permanent, b.replay_s, b.key, NULL, b.state, b.limit_key, b.slot, b.tenant_slot
        FROM returned b) u) t
  ), history AS (
    INSERT INTO executions (id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version, seq, attempt,
                            lane, origin, status, queue, tenant, task, reason, error, result, progress, output)
    SELECT execution_id, job_id, id, worker_id, fire_at, due_at,
      claimed_at + make_interval(secs => coalesce(started_s, 0)),
      coalesce(claimed_at + make_interval(secs => started_s + took_s), moment),
      token, job_version, seq, attempt, lane, origin, status, queue, tenant, task, reason, error, result, progress, output
    FROM tries
  ), job_endings AS (
    INSERT INTO endings (job_id, execution_id, ended_at, status)
    SELECT job_id, execution_id, moment, ending FROM tries
    WHERE ending IS NOT NULL AND job_id < '80000000-0000-0000-0000-000000000000'
  ), buried AS (
    INSERT INTO dead_letters (id, job_id, run_id, fire_at, buried_at, replay_at, job_version, seq, attempts, lost_count, lane,
                              permanent, origin, status, queue, tenant, task, reason, name, error, payload)
    SELECT t.execution_id, t.job_id, t.id, t.fire_at, moment, moment + make_interval(secs => t.replay_s), t.job_version, t.seq,
      t.attempt, t.lost_count + (t.status = 'lost')::int, t.lane, coalesce(t.permanent, false), t.origin, t.status, t.queue, t.tenant,
      t.task, coalesce(t.reason, t.status), j.name, t.error, coalesce(j.payload, 'null')
    FROM tries t LEFT JOIN LATERAL (SELECT jobs.name, jobs.payload FROM jobs WHERE jobs.id = t.job_id LIMIT 1) j ON true
    WHERE t.ending = 'failed'
  ), completed_keys AS (
    UPDATE idempotency_keys k SET
      completed_at = moment, execution_id = t.execution_id, expires_at = greatest(k.expires_at, moment + interval '7 days')
    FROM tries t
    WHERE t.key IS NOT NULL AND t.ending = 'completed' AND k.tenant = t.tenant AND k.key = t.key AND k.job_id = t.job_id AND k.completed_at IS NULL
  ), given_back AS (  -- each is found by the primary key, whatever the plan was made on; nobody else writes a slot that is held
    UPDATE slots s SET run_id = NULL WHERE s.ctid = ANY (ARRAY(
      SELECT o.ctid FROM tries t CROSS JOIN LATERAL (
        SELECT h.ctid FROM slots h WHERE t.slot IS NOT NULL AND h.key = t.limit_key AND h.n = t.slot AND h.run_id = t.id LIMIT 1) o
      UNION ALL SELECT o.ctid FROM tries t CROSS JOIN LATERAL (
        SELECT h.ctid FROM slots h WHERE t.tenant_slot IS NOT NULL AND h.key = '@tenant:' || t.tenant AND h.n = t.tenant_slot AND h.run_id = t.id LIMIT 1) o))
  ), told AS (
    DELETE FROM live_output o
    WHERE o.run_id = ANY (ARRAY(SELECT t.id FROM tries t WHERE t.output IS NOT NULL OR t.progress IS NOT NULL))
  )
  SELECT array_agg(t.id), array_agg(t.execution_id), array_agg(t.state),
    array_agg(t.limit_key) FILTER (WHERE t.slot IS NOT NULL), array_agg(t.queue) FILTER (WHERE t.tenant_slot IS NOT NULL)
  INTO run_ids, execution_ids, states, freed_keys, woken_queues FROM tries t;
  IF freed_keys IS NOT NULL THEN
    SELECT array_agg(k.key) INTO awaited_keys FROM (SELECT DISTINCT unnest(freed_keys) AS key) k
    CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.state = 'parked' AND r.limit_key = k.key ORDER BY r.limit_key, r.due_at, r.id LIMIT 1) some_run;
  END IF;
  IF awaited_keys IS NOT NULL THEN
    woken_queues := woken_queues || (SELECT p.queues FROM sexton.release_parked(awaited_keys, moment) p);
  END IF;
  IF reports @> '[{"next": "again"}]' OR woken_queues <> '{}' THEN
    PERFORM sexton.announce(ARRAY(
      SELECT DISTINCT r.queue FROM (
        SELECT runs.queue, runs.state FROM runs
        WHERE runs.id = ANY (ARRAY(SELECT (x->>'run_id')::uuid FROM jsonb_array_elements(reports) x WHERE x->>'next' = 'again'))
        OFFSET 0) r  -- by the primary key, never through all that is ready
      WHERE r.state = 'ready'
      UNION SELECT unnest(woken_queues)),
      reports @? '$[*] ? (@.next == "again" && @.delay_s > 0 && @.delay_s < 3)');
  END IF;
  RETURN QUERY SELECT * FROM unnest(run_ids, execution_ids, states);
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
