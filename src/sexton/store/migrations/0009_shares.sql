-- Fair shares, lanes and limits: who is served next (docs/adr/014). All of it is decided inside the claim.

-- What is known of tenants beyond their name; one that is not here has the defaults.
CREATE TABLE sexton.tenants (
  name              text PRIMARY KEY,
  weight            int NOT NULL DEFAULT 1,         -- its share of every lane, against the weights of others that have work there
  running_max       int,                            -- runs at once, over the cluster
  waiting_max       int,                            -- runs that have not started; more are refused
  submit_rate       real,                           -- jobs per second that it may submit; more are refused
  submit_burst      int,
  jitter_s          real,                           -- of its schedules that say nothing themselves
  paused_at         timestamptz,
  paused_by         text,
  note              text,
  updated_at        timestamptz NOT NULL,
  bucket_at         timestamptz NOT NULL DEFAULT '-infinity',  -- of `submit_rate`: see sexton.tokens
  waiting_count     int NOT NULL DEFAULT 0,         -- submitted since it was counted, and what was counted then
  counted_at        timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT weight_is_a_share CHECK (weight BETWEEN 1 AND 1000),
  CONSTRAINT tenant_limits_are_positive CHECK (running_max > 0 AND waiting_max > 0 AND submit_rate > 0 AND submit_burst > 0)
) WITH (fillfactor = 50);

CREATE TABLE sexton.queues (
  name              text PRIMARY KEY,
  release_rate      real,                           -- runs per second that may start, over the cluster
  release_burst     int,
  ageing_s          real,                           -- a run that waited this long rises one lane; null: never
  timeout_s         real,                           -- of jobs and tasks that say nothing themselves; 0: no limit
  jitter_s          real,
  policy            jsonb,                          -- retry
  paused_at         timestamptz,
  paused_by         text,
  note              text,
  updated_at        timestamptz NOT NULL,
  bucket_at         timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT queue_limits_are_positive CHECK (release_rate > 0 AND release_burst > 0 AND ageing_s > 0 AND timeout_s >= 0 AND jitter_s >= 0)
) WITH (fillfactor = 50);

-- Limits by key. The job names the key, the numbers live here.
CREATE TABLE sexton.limits (
  key               text PRIMARY KEY,
  running           int,                            -- runs at once
  count             int,                            -- starts per `per_s`
  per_s             float8,
  burst             int,                            -- starts that may come at once after a rest
  ordered           boolean NOT NULL DEFAULT false, -- one at a time, by due time, retries included
  served_tenant     text NOT NULL DEFAULT '',       -- whose turn was last
  made_by           text,
  updated_at        timestamptz NOT NULL,
  bucket_at         timestamptz NOT NULL DEFAULT '-infinity',
  CONSTRAINT limit_says_something CHECK (running IS NOT NULL OR count IS NOT NULL),
  CONSTRAINT rate_is_whole CHECK ((count IS NULL) = (per_s IS NULL) AND (count IS NULL) = (burst IS NULL)),
  CONSTRAINT limits_are_positive CHECK (running > 0 AND count > 0 AND per_s > 0 AND burst > 0),
  CONSTRAINT ordered_is_one_at_a_time CHECK (NOT ordered OR running = 1)
) WITH (fillfactor = 50);

-- Limits are slots (rule 6): a run holds one from its claim to its end, and the statement that ends it gives it back. They are made
-- when first needed. The slots of a tenant have the key '@tenant:' and its name; no other key begins with '@'.
CREATE TABLE sexton.slots (
  key               text NOT NULL,
  n                 int NOT NULL,
  run_id            uuid,
  CONSTRAINT slots_pkey PRIMARY KEY (key, n)
) WITH (fillfactor = 50);

ALTER TABLE sexton.runs
  ADD COLUMN slot int,                              -- of its limit key
  ADD COLUMN tenant_slot int,
  ADD COLUMN aged smallint NOT NULL DEFAULT 0,      -- lanes it has risen by waiting
  ADD COLUMN counted boolean NOT NULL DEFAULT false; -- its tenant has a limit of what may wait

DROP INDEX sexton.runs_ready;
CREATE INDEX runs_ready ON sexton.runs (queue, lane, tenant, due_at, id) WHERE state = 'ready';
CREATE INDEX runs_admitted ON sexton.runs (limit_key) WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX tenants_that_may_refuse ON sexton.tenants (name) WHERE waiting_max IS NOT NULL OR submit_rate IS NOT NULL;
CREATE INDEX runs_parked ON sexton.runs (limit_key, lane, tenant, due_at, id) WHERE state = 'parked';
CREATE INDEX runs_in_order ON sexton.runs (limit_key, due_at, id) WHERE state = 'parked';
CREATE INDEX runs_to_come ON sexton.runs (limit_key, due_at, id) WHERE state IN ('waiting', 'blocked') AND limit_key IS NOT NULL;
CREATE INDEX runs_counted ON sexton.runs (tenant) WHERE counted AND state <> 'running';

-- Live is from promotion to the end: while it is parked, too.
DROP INDEX sexton.one_live_run;
CREATE UNIQUE INDEX one_live_run ON sexton.runs (job_id) WHERE overlap = 1 AND (state IN ('ready', 'parked', 'running') OR token > 0);

-- Who holds a run back for its limit wakes a promoter to let it through: every way to become ready leads past here, so none can
-- forget the limit. Only sexton.release_parked makes such a run ready, and the claim then asks for the slot.
CREATE FUNCTION sexton.hold_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' OR OLD.state <> 'parked' THEN
    NEW.state := 'parked';
    PERFORM sexton.announce('{}', true);
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER hold_back BEFORE INSERT OR UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (NEW.limit_key IS NOT NULL AND NEW.state = 'ready' AND NEW.slot IS NULL) EXECUTE FUNCTION sexton.hold_back();

-- The first in line of an ordered key has the slot before it is claimed. If it steps out of line, by a pause, an edit or its end, the
-- slot is free for the next.
CREATE FUNCTION sexton.step_out() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  UPDATE slots s SET run_id = NULL WHERE s.key = OLD.limit_key AND s.n = OLD.slot AND s.run_id = OLD.id;
  PERFORM sexton.announce('{}', true);
  IF TG_OP = 'DELETE' THEN
    RETURN NULL;
  END IF;
  NEW.slot := NULL;
  RETURN NEW;
END
$$;
CREATE TRIGGER step_out BEFORE UPDATE OF state ON sexton.runs FOR EACH ROW
WHEN (OLD.slot IS NOT NULL AND OLD.state = 'ready' AND (NEW.state IN ('paused', 'waiting') OR NEW.slot IS NULL)) EXECUTE FUNCTION sexton.step_out();
CREATE TRIGGER step_out_for_good AFTER DELETE ON sexton.runs FOR EACH ROW
WHEN (OLD.slot IS NOT NULL AND OLD.state = 'ready') EXECUTE FUNCTION sexton.step_out();

-- How many tokens a bucket holds that was empty at `bucket_at` and has been filling since, up to `burst`. A clock that was set back
-- finds it full, not closed for an hour.
CREATE FUNCTION sexton.tokens(bucket_at timestamptz, rate float8, burst int, moment timestamptz) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN bucket_at = '-infinity' OR bucket_at > moment + interval '1 second' THEN burst
    ELSE floor(least(burst, greatest(0, extract(epoch FROM moment - bucket_at)::float8 * rate) + 1e-6))::int END
$$;

-- Where the bucket stands once `taken` tokens are out.
CREATE FUNCTION sexton.drawn(bucket_at timestamptz, rate float8, burst int, moment timestamptz, taken int) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN bucket_at > moment + interval '1 second' THEN moment - make_interval(secs => burst / rate)
    ELSE greatest(least(bucket_at, moment), moment - make_interval(secs => burst / rate)) END + make_interval(secs => taken / rate)
$$;

-- What a tenant may have: its weight, and how many more runs if there is a limit. One with a limit gets nothing ahead of a free slot.
CREATE FUNCTION sexton.standing(tenant text, ahead boolean) RETURNS TABLE (weight int, room int, is_served boolean) LANGUAGE sql STABLE AS $$
  SELECT coalesce(t.weight, 1), t.room, t.paused_at IS NULL AND (t.room IS NULL OR (t.room > 0 AND NOT ahead)) FROM (SELECT) AS one LEFT JOIN LATERAL (
    SELECT o.weight, o.paused_at, o.running_max - (
      SELECT count(*) FROM sexton.slots s WHERE s.key = '@tenant:' || o.name AND s.run_id IS NOT NULL)::int AS room
    FROM sexton.tenants o WHERE o.name = tenant OFFSET 0) t ON true
$$;

-- The part of one tenant if `count` turns are dealt: the round that was begun, then whole rounds, then the beginning of one more.
-- `before` and `first_before`: the turns of those ahead of it, in a whole round and in the one that was begun.
CREATE FUNCTION sexton.dealt(count int, weight int, had int, before bigint, first_before bigint, total bigint, had_total bigint) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (greatest(0, least(count - first_before, weight - had))
    + greatest(0, count - (total - had_total)) / total * weight
    + greatest(0, least(greatest(0, count - (total - had_total)) % total - before, weight)))::int
$$;

-- Whose turn it is: up to `wanted` ready runs of one queue and lane, locked, in the order they are to start.
--
-- Tenants are walked in a circle by a loose index scan, from where this worker's last claim stopped: each has `weight` turns in a
-- round, and what one does not need the others get. So the cost follows what is taken, never how many tenants or runs wait.
-- `turn` is how many turns of its round the tenant has had, 0 for all: the next claim goes on from there. domain/fairness.py is
-- the same in Python, and what tests compare this with.
CREATE FUNCTION sexton.pick_runs(
  worker_queue text, worker_lane smallint, tasks text[], wanted int, ahead boolean, last_tenant text, last_turn int, moment timestamptz,
  OUT ids uuid[], OUT turns int[], OUT is_limited boolean, OUT stopped_at text, OUT may_have_more boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  alone text;
BEGIN
  may_have_more := false;
  -- Nobody to share with: most of the time, for most.
  SELECT r.tenant INTO alone FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane
  ORDER BY r.tenant, r.due_at, r.id LIMIT 1;
  IF NOT EXISTS (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > alone
                 ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
    AND NOT EXISTS (SELECT FROM tenants t WHERE t.name = alone) THEN
    SELECT array_agg(p.id), array_fill(0, ARRAY[count(*)::int]), coalesce(bool_or(p.limit_key IS NOT NULL), false) INTO ids, turns, is_limited FROM (
      SELECT r.id, r.limit_key FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = alone
        AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
        AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
      ORDER BY r.tenant, r.due_at, r.id LIMIT wanted FOR UPDATE OF r SKIP LOCKED) p;
    RETURN;
  END IF;

  -- Only those count who have something for this worker, so that no turn is lost on the others.
  WITH RECURSIVE walk (tenant, begun_with, wrapped, step, found, weight, room, is_served) AS (
    SELECT f.tenant, f.tenant, false, 1, t.is_served::int, t.weight, t.room, t.is_served FROM (
      SELECT coalesce(
        CASE WHEN last_turn > 0 THEN
          (SELECT r.tenant FROM runs r
           WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant >= last_tenant
             AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
             AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
           ORDER BY r.tenant, r.due_at, r.id LIMIT 1)
        ELSE
          (SELECT r.tenant FROM runs r
           WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > last_tenant
             AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
             AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
           ORDER BY r.tenant, r.due_at, r.id LIMIT 1) END,
        (SELECT r.tenant FROM runs r
         WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane
           AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
           AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
         ORDER BY r.tenant, r.due_at, r.id LIMIT 1)) AS tenant
      OFFSET 0) f  -- each of these probes once
    CROSS JOIN LATERAL sexton.standing(f.tenant, ahead) t
    WHERE f.tenant IS NOT NULL
    UNION ALL
    SELECT n.tenant, n.begun_with, n.wrapped, n.step + 1, n.found + t.is_served::int, t.weight, t.room, t.is_served FROM (
      SELECT m.tenant, m.begun_with, m.wrapped OR m.tenant <= m.before AS wrapped, m.step, m.found FROM (
        SELECT coalesce(
          (SELECT r.tenant FROM runs r
           WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant > w.tenant
             AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
             AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
           ORDER BY r.tenant, r.due_at, r.id LIMIT 1),
          CASE WHEN NOT w.wrapped THEN
            (SELECT r.tenant FROM runs r
             WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane
               AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
               AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
             ORDER BY r.tenant, r.due_at, r.id LIMIT 1) END) AS tenant,
          w.tenant AS before, w.begun_with, w.wrapped, w.step, w.found
        FROM walk w WHERE w.found < wanted OFFSET 0) m
      WHERE m.tenant IS NOT NULL) n
    CROSS JOIN LATERAL sexton.standing(n.tenant, ahead) t
    WHERE NOT (n.wrapped AND n.tenant >= n.begun_with)
  ), served AS MATERIALIZED (
    SELECT w.tenant, w.step, w.weight, w.room,
      CASE WHEN w.step = 1 AND w.tenant = last_tenant THEN least(last_turn, w.weight) ELSE 0 END AS had
    FROM walk w WHERE w.is_served
  ), ranked AS (
    SELECT s.*, sum(s.weight) OVER () AS total, sum(s.had) OVER () AS had_total,
      sum(s.weight) OVER (ORDER BY s.step) - s.weight AS before, sum(s.weight - s.had) OVER (ORDER BY s.step) - (s.weight - s.had) AS first_before
    FROM served s
  ), shares AS MATERIALIZED (
    SELECT r.tenant, r.step, r.weight, r.had, r.room,
      least(r.room, sexton.dealt(wanted, r.weight, r.had, r.before, r.first_before, r.total, r.had_total)) AS share
    FROM ranked r
  ), first AS MATERIALIZED (
    SELECT s.tenant, s.step, s.weight, s.had, s.room, s.share, p.id, p.limit_key, (row_number() OVER (PARTITION BY s.step ORDER BY p.due_at, p.id))::int AS nth
    FROM shares s CROSS JOIN LATERAL (
      SELECT r.id, r.due_at, r.limit_key FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = s.tenant
        AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
        AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
      ORDER BY r.tenant, r.due_at, r.id LIMIT s.share FOR UPDATE OF r SKIP LOCKED) p
    WHERE s.share > 0
  ), hungry AS MATERIALIZED (
    -- What others left is dealt to those who took all they were offered: from the start, so that what they had comes out again.
    -- Their own rows, locked above, come first: that is the offset below.
    SELECT h.tenant, h.step, h.weight, h.had, h.room, h.share,
      least(h.room, sexton.dealt(h.count, h.weight, h.had, h.before, h.first_before, h.total, h.had_total)) - h.share AS more
    FROM (
      SELECT s.*, (wanted - (SELECT count(*) FROM first) + sum(s.share) OVER ())::int AS count,
        sum(s.weight) OVER () AS total, sum(s.had) OVER () AS had_total,
        sum(s.weight) OVER (ORDER BY s.step) - s.weight AS before, sum(s.weight - s.had) OVER (ORDER BY s.step) - (s.weight - s.had) AS first_before
      FROM shares s LEFT JOIN (SELECT f.step, count(*) AS count FROM first f GROUP BY f.step) took ON took.step = s.step
      WHERE (SELECT count(*) FROM first) < wanted AND coalesce(took.count, 0) = s.share AND (s.room IS NULL OR s.room > s.share)) h
  ), second AS (
    SELECT h.tenant, h.step, h.weight, h.had, h.room, p.id, p.limit_key, h.share + (row_number() OVER (PARTITION BY h.step ORDER BY p.due_at, p.id))::int AS nth
    FROM hungry h CROSS JOIN LATERAL (
      SELECT r.id, r.due_at, r.limit_key FROM runs r
      WHERE r.state = 'ready' AND r.queue = worker_queue AND r.lane = worker_lane AND r.tenant = h.tenant
        AND r.task = ANY (tasks) AND NOT (ahead AND (r.at_most_once OR r.limit_key IS NOT NULL))
        AND (r.start_by IS NULL OR r.start_by >= moment) AND (r.deadline_at IS NULL OR r.deadline_at > moment)
      ORDER BY r.tenant, r.due_at, r.id OFFSET h.share LIMIT h.more FOR UPDATE OF r SKIP LOCKED) p
    WHERE h.more > 0
  ), picked AS (
    SELECT p.id, p.tenant, p.limit_key IS NOT NULL OR p.room IS NOT NULL AS is_limited, (p.had + p.nth) % p.weight AS turn,
      (p.had + p.nth - 1) / p.weight AS round, p.step, p.nth
    FROM (SELECT id, tenant, limit_key, room, had, nth, weight, step FROM first
          UNION ALL SELECT id, tenant, limit_key, room, had, nth, weight, step FROM second) p
    ORDER BY round, step, nth LIMIT wanted
  )
  SELECT array_agg(p.id), array_agg(p.turn), coalesce(bool_or(p.is_limited), false), coalesce((array_agg(p.tenant))[count(*)], (SELECT w.tenant FROM walk w ORDER BY w.step DESC LIMIT 1)),
    -- Some had less than they were offered at last, or are held by a rival, and not all were seen.
    count(*) < wanted AND (count(*) > 1 OR (SELECT count(*) FROM served) >= wanted)
  INTO ids, turns, is_limited, stopped_at, may_have_more FROM picked p;
END
$$;

-- Takes a free slot for each run, or makes one while there are fewer than `maxes` says; null where there is none. The numbers may have
-- been lowered: only those are given out that leave the total within the limit, whoever else takes one at the same time.
-- They are written by INSERT, which goes by the primary key: an UPDATE that joins, planned while there were few slots, compared all with
-- all, 200 µs per run in a claim of 100.
CREATE FUNCTION sexton.take_slots(keys text[], maxes int[], run_ids uuid[]) RETURNS int[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  taken int[];
  is_disputed boolean;
BEGIN
  FOR attempt IN 1..3 LOOP
    WITH asked AS MATERIALIZED (
      SELECT k.key, k.takers, h.highest, ARRAY(
        SELECT o.n FROM slots o WHERE o.key = k.key AND o.run_id IS NULL AND o.n <= h.highest
        ORDER BY o.n LIMIT cardinality(k.takers) FOR UPDATE SKIP LOCKED) AS free
      FROM (
        SELECT w.key, max(w.max) AS max, array_agg(w.run_id ORDER BY w.ord) AS takers
        FROM unnest(keys, maxes, run_ids, taken) WITH ORDINALITY AS w(key, max, run_id, n, ord)
        WHERE w.key IS NOT NULL AND w.n IS NULL GROUP BY w.key) k
      CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n > k.max AND o.run_id IS NOT NULL) THEN k.max
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

-- Each is found by the primary key, whatever the plan was made on; nobody else writes a slot that is held.
CREATE FUNCTION sexton.give_back(slot_keys text[], numbers int[], run_ids uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  UPDATE slots s SET run_id = NULL WHERE s.ctid = ANY (ARRAY(
    SELECT o.ctid FROM unnest(slot_keys, numbers, run_ids) AS g(key, n, run_id)
    CROSS JOIN LATERAL (SELECT h.ctid FROM slots h WHERE h.key = g.key AND h.n = g.n AND h.run_id = g.run_id LIMIT 1) o));
END
$$;

-- Which of these runs, picked and locked by a claim, their limits let through, and with which slots. What the limit of its key keeps
-- back is parked; what its tenant's keeps back stays ready, and the tenant is passed over until it has room.
CREATE FUNCTION sexton.admit_runs(ids uuid[], moment timestamptz, OUT admitted boolean[], OUT slots int[], OUT tenant_slots int[], OUT parked int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  keys text[];
  maxes int[];
  tenant_keys text[];
  tenant_maxes int[];
  held int[];
  rated text[];
  granted boolean[];
  refused int[];
BEGIN
  SELECT array_agg(CASE WHEN l.running IS NOT NULL AND r.slot IS NULL THEN l.key END ORDER BY p.ord), array_agg(l.running ORDER BY p.ord),
    array_agg(CASE WHEN t.running_max IS NOT NULL THEN '@tenant:' || t.name END ORDER BY p.ord), array_agg(t.running_max ORDER BY p.ord),
    array_agg(r.slot ORDER BY p.ord), array_agg(CASE WHEN l.count IS NOT NULL THEN l.key END ORDER BY p.ord)
  INTO keys, maxes, tenant_keys, tenant_maxes, held, rated
  FROM unnest(ids) WITH ORDINALITY AS p(id, ord)
  CROSS JOIN LATERAL (SELECT o.slot, o.limit_key, o.tenant FROM runs o WHERE o.id = p.id LIMIT 1) r
  LEFT JOIN LATERAL (SELECT o.key, o.running, o.count FROM limits o WHERE o.key = r.limit_key LIMIT 1) l ON true
  LEFT JOIN LATERAL (SELECT o.name, o.running_max FROM tenants o WHERE o.name = r.tenant LIMIT 1) t ON true;

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
  IF array_remove(rated, NULL) <> '{}' THEN
    granted := sexton.take_tokens(rated, moment);
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

-- One token for each of these keys, as far as their buckets go.
CREATE FUNCTION sexton.take_tokens(keys text[], moment timestamptz) RETURNS boolean[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  granted boolean[];
BEGIN
  PERFORM FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE;  -- lock, then look: buckets are shared by all workers
  WITH wanted AS (
    SELECT w.key, w.ord, row_number() OVER (PARTITION BY w.key ORDER BY w.ord) AS nth FROM unnest(keys) WITH ORDINALITY AS w(key, ord)
  ), buckets AS MATERIALIZED (
    SELECT l.key, sexton.tokens(l.bucket_at, l.count / l.per_s, l.burst, moment) AS tokens
    FROM limits l WHERE l.key = ANY (keys)
  ), drawn AS (
    UPDATE limits l SET bucket_at = sexton.drawn(l.bucket_at, l.count / l.per_s, l.burst, moment, least(b.tokens, w.wanted)::int)
    FROM buckets b JOIN (SELECT key, count(*) AS wanted FROM wanted GROUP BY key) w ON w.key = b.key
    WHERE l.key = b.key AND b.tokens > 0
  )
  SELECT array_agg(coalesce(w.nth <= b.tokens, false) ORDER BY w.ord) INTO granted FROM wanted w LEFT JOIN buckets b ON b.key = w.key;
  RETURN granted;
END
$$;

-- The claim: lanes in strict order over all queues of the worker, queues in the order given, tenants fairly inside (sexton.pick_runs),
-- limits respected. What a limit keeps back is parked, outside the index that claims read, and the next in line gets its chance.
-- `turns` says where the last claim stopped: {queue: {lane: [tenant, turn]}}. A worker that was declared dead claims nothing.
CREATE FUNCTION sexton.claim_runs(
  worker uuid, queues text[], tasks text[], wanted int, grace_s float8, ahead boolean, turns jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (
  id uuid, job_id uuid, worker_id uuid, token bigint, attempt smallint, lost_count smallint, at_most_once boolean, seq int, origin text,
  deadline_left_s float8, policy jsonb, job_version int, fire_at timestamptz, due_at timestamptz, claimed_at timestamptz, timeout_s float8,
  queue text, tenant text, lane smallint, task text, name text, payload jsonb, idempotency_key text, completed_by uuid, trace text, turn int, is_limited boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
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
  left_to_take int := wanted;
  left_to_look int := 100;
  allowed int;
  got int;
BEGIN
  IF NOT EXISTS (SELECT FROM workers w WHERE w.id = worker AND w.lost_at IS NULL) THEN
    RETURN;
  END IF;
  FOR flow IN
    SELECT q.queue, l.lane, turns->q.queue->l.lane::text AS last, known.release_rate
    FROM unnest(queues) WITH ORDINALITY AS q(queue, ord) CROSS JOIN unnest(ARRAY[0, 1, 2, 3]::smallint[]) AS l(lane)
    CROSS JOIN LATERAL (SELECT FROM runs r WHERE r.state = 'ready' AND r.queue = q.queue AND r.lane = l.lane
                        ORDER BY r.tenant, r.due_at, r.id LIMIT 1) AS waiting
    LEFT JOIN LATERAL (SELECT o.paused_at, o.release_rate FROM queues o WHERE o.name = q.queue LIMIT 1) AS known ON true
    WHERE known.paused_at IS NULL
    ORDER BY l.lane, q.ord
  LOOP
    allowed := left_to_take;
    IF flow.release_rate IS NOT NULL THEN
      SELECT least(allowed, sexton.tokens(o.bucket_at, o.release_rate, o.release_burst, moment)) INTO allowed
      FROM queues o WHERE o.name = flow.queue FOR UPDATE;
    END IF;
    last_tenant := coalesce(flow.last->>0, '');
    last_turn := coalesce((flow.last->>1)::int, 0);
    WHILE allowed > 0 LOOP
      SELECT * INTO picked FROM sexton.pick_runs(
        flow.queue, flow.lane, tasks, allowed, ahead, last_tenant, last_turn, moment);
      IF picked.ids IS NULL AND picked.may_have_more AND left_to_look > 0 THEN
        -- All whose turn it is are held by a rival: on to those behind them.
        left_to_look := left_to_look - 1;
        last_tenant := picked.stopped_at;
        last_turn := 0;
        CONTINUE;
      END IF;
      EXIT WHEN picked.ids IS NULL;
      admitted := NULL; taken_slots := NULL; taken_tenant_slots := NULL; parked := 0;
      IF picked.is_limited THEN
        SELECT a.admitted, a.slots, a.tenant_slots, a.parked INTO admitted, taken_slots, taken_tenant_slots, parked
        FROM sexton.admit_runs(picked.ids, moment) a;
      END IF;
      RETURN QUERY
      WITH claimed AS (
        UPDATE runs r SET
          state = 'running', worker_id = worker, token = r.token + 1, attempt = r.attempt + 1, claimed_at = moment,
          must_end_at = moment + make_interval(secs => least(r.timeout_s, extract(epoch FROM r.deadline_at - moment)) + grace_s),
          slot = p.slot, tenant_slot = p.tenant_slot
        FROM unnest(picked.ids, picked.turns, admitted, taken_slots, taken_tenant_slots)
          WITH ORDINALITY AS p(id, turn, admitted, slot, tenant_slot, ord)
        WHERE r.id = ANY (picked.ids) AND r.id = p.id AND p.admitted IS NOT FALSE  -- one scan of the primary key, not one for each
        RETURNING r.*, p.turn, p.ord
      )
      SELECT c.id, c.job_id, c.worker_id, c.token, c.attempt, c.lost_count, c.at_most_once, c.seq, c.origin,
        extract(epoch FROM c.deadline_at - moment)::float8, j.policy, c.job_version, c.fire_at, c.due_at, c.claimed_at, c.timeout_s::float8,
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
      -- Those behind what was parked get their chance, and no lower lane gets what this one still has.
      EXIT WHEN coalesce(parked, 0) = 0 AND NOT picked.may_have_more;
      last_tenant := picked.stopped_at;
      last_turn := picked.turns[cardinality(picked.turns)];
    END LOOP;
    EXIT WHEN left_to_take <= 0;
  END LOOP;
END
$$;

-- Lets parked runs through: as many as their limit has room for, lanes in order, tenants in turn inside a lane; for an ordered key the
-- first by due time, which then has the slot until it ends. Too many do no harm, the claim asks again; too few are looked at again by
-- every promoter pass (rule 5). `wanted_keys` null: every key that something is parked for, at most 1,000 of them.
CREATE FUNCTION sexton.release_parked(wanted_keys text[] DEFAULT NULL, at timestamptz DEFAULT NULL,
  OUT queues text[], OUT released int, OUT next_s float8)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  keys text[];
  known limits;
  room int;
  chosen uuid[];
  more uuid[];
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
      RETURN;
    END IF;
    WITH RECURSIVE walk (key, n) AS (
      (SELECT r.limit_key, 1 FROM runs r WHERE r.state = 'parked' ORDER BY r.limit_key, r.due_at, r.id LIMIT 1)
      UNION ALL
      SELECT n.limit_key, w.n + 1 FROM walk w CROSS JOIN LATERAL (
        SELECT r.limit_key FROM runs r WHERE r.state = 'parked' AND r.limit_key > w.key ORDER BY r.limit_key, r.due_at, r.id LIMIT 1) n
      WHERE w.n < 1000
    )
    SELECT array_agg(walk.key) INTO keys FROM walk;
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
    IF room > 0 AND NOT known.ordered THEN
      room := room - (SELECT count(*) FROM (
        SELECT FROM runs r WHERE r.state = 'ready' AND r.limit_key = known.key ORDER BY r.limit_key LIMIT room) r);
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

CREATE TYPE sexton.holding AS (run_id uuid, queue text, key text, slot int, tenant_key text, tenant_slot int);

-- The one way a run ends or goes back: see 0003. New here: slots go back with the statement that ends the try, and the next in line is
-- let through; a try keeps the slot of an ordered key until its run ends. What rose by waiting returns to its lane.
CREATE OR REPLACE FUNCTION sexton.finish_runs(reports jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (run_id uuid, execution_id uuid, state text)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  run_ids uuid[];
  execution_ids uuid[];
  states text[];
  freed sexton.holding[];
  freed_keys text[];
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
    SELECT DISTINCT ON (r.id) r.id, r.job_id, r.worker_id, r.fire_at, r.due_at, r.claimed_at, r.token, r.job_version, r.seq, r.attempt, r.lost_count,
      r.lane + r.aged AS lane, r.origin, r.queue, r.tenant, r.task, x.status, x.started_s, x.took_s, x.reason, x.error, x.result, x.progress, x.output,
      x.permanent, x.replay_s, x.key, x.delay_s, x.spends, r.limit_key, r.tenant_slot,
      r.slot IS NOT NULL AND EXISTS (SELECT FROM limits l WHERE l.key = r.limit_key AND l.ordered) AS keeps_slot, r.slot
    FROM reported x JOIN runs r ON r.id = x.run_id
    WHERE x.next = 'again' AND r.token = x.token AND r.worker_id = x.worker_id
      AND r.id = ANY (ARRAY(SELECT reported.run_id FROM reported WHERE reported.next = 'again'))
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
    WHERE r.id = ANY (ARRAY(SELECT returning_runs.id FROM returning_runs)) AND r.id = b.id AND r.token = b.token AND r.worker_id = b.worker_id AND r.cancel_requested_at IS NULL
    RETURNING r.id, r.state
  ), tries AS MATERIALIZED (
    SELECT sexton.uuid7(t.micros) AS execution_id, t.* FROM (
      SELECT micros + row_number() OVER () AS micros, u.* FROM (
        SELECT e.id, e.job_id, e.worker_id, e.fire_at, e.due_at, e.claimed_at, e.token, e.job_version, e.seq, e.attempt, e.lost_count,
          e.lane, e.origin, e.queue, e.tenant, e.task, e.status, e.started_s, e.took_s, e.reason, e.error, e.result, e.progress,
          e.output, e.permanent, e.replay_s, e.key, e.ending, e.state, e.limit_key, e.slot, e.tenant_slot
        FROM ended e
        UNION ALL
        SELECT b.id, b.job_id, b.worker_id, b.fire_at, b.due_at, b.claimed_at, b.token, b.job_version, b.seq, b.attempt, b.lost_count,
          b.lane, b.origin, b.queue, b.tenant, b.task, b.status, b.started_s, b.took_s, b.reason, b.error, b.result, b.progress,
          b.output, b.permanent, b.replay_s, b.key, NULL, returned.state, b.limit_key, CASE WHEN NOT b.keeps_slot THEN b.slot END, b.tenant_slot
        FROM returning_runs b JOIN returned ON returned.id = b.id) u) t
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
  ), told AS (
    DELETE FROM live_output o
    WHERE o.run_id = ANY (ARRAY(SELECT t.id FROM tries t WHERE t.output IS NOT NULL OR t.progress IS NOT NULL))
  )
  SELECT array_agg(t.id), array_agg(t.execution_id), array_agg(t.state),
    array_agg(ROW (t.id, t.queue, t.limit_key, t.slot, '@tenant:' || t.tenant, t.tenant_slot)::sexton.holding)
      FILTER (WHERE t.slot IS NOT NULL OR t.tenant_slot IS NOT NULL)
  INTO run_ids, execution_ids, states, freed FROM tries t;

  IF freed IS NOT NULL THEN
    PERFORM sexton.give_back(array_agg(f.key) || array_agg(f.tenant_key), array_agg(f.slot) || array_agg(f.tenant_slot),
                             array_agg(f.run_id) || array_agg(f.run_id)) FROM unnest(freed) AS f;
    SELECT array_agg(DISTINCT f.queue) FILTER (WHERE f.tenant_slot IS NOT NULL), array_agg(DISTINCT f.key) FILTER (WHERE f.slot IS NOT NULL)
    INTO woken_queues, freed_keys FROM unnest(freed) AS f;
    IF freed_keys IS NOT NULL THEN
      woken_queues := woken_queues || (SELECT p.queues FROM sexton.release_parked(freed_keys, moment) p);
    END IF;
  END IF;
  IF reports @> '[{"next": "again"}]' OR woken_queues IS NOT NULL THEN
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

-- The key that a job names, with what its payload says in place of {payload.path}.
CREATE FUNCTION sexton.render_key(template text, payload jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  rendered text := '';
  part record;
  value text;
BEGIN
  FOR part IN SELECT m[1] AS plain, m[2] AS place FROM regexp_matches(template, '((?:(?!\{payload\.)[\s\S])*)(?:\{payload\.([^{}]+)\})?', 'g') AS m LOOP
    value := payload #>> string_to_array(part.place, '.');
    IF part.place IS NOT NULL AND value IS NULL THEN
      RAISE EXCEPTION 'limit.key: the payload has no "%"', part.place
        USING ERRCODE = '22023', HINT = format('Give it in the payload, or name a key without {payload.%s}.', part.place);
    END IF;
    rendered := rendered || part.plain || coalesce(value, '');
  END LOOP;
  IF char_length(rendered) NOT BETWEEN 1 AND 200 OR rendered LIKE '@%' OR rendered ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'limit.key: "%" is no key: 1 to 200 printable characters, and the first is not @', left(rendered, 100) USING ERRCODE = '22023';
  END IF;
  RETURN rendered;
END
$$;

CREATE FUNCTION sexton.limit_key_of(policy jsonb, payload jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN policy ? 'limit' THEN sexton.render_key(policy->'limit'->>'key', payload) END
$$;

-- The numbers in a job make the limit of its key if there is none; a key without numbers must be there already.
-- `named` is an array of {key, limit}.
CREATE FUNCTION sexton.make_limits(named jsonb, moment timestamptz, maker text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  missing text;
BEGIN
  INSERT INTO limits (key, running, count, per_s, burst, ordered, made_by, updated_at)
  SELECT DISTINCT ON (n.key) n.key, coalesce(l.running, CASE WHEN l.ordered THEN 1 END), l.count, l.per_s,
    CASE WHEN l.count IS NOT NULL THEN coalesce(l.burst, greatest(1, ceil(l.count / 10.0)::int)) END, coalesce(l.ordered, false), maker, moment
  FROM jsonb_to_recordset(named) AS n (key text, "limit" jsonb)
  CROSS JOIN LATERAL jsonb_to_record(n."limit") AS l (running int, count int, per_s float8, burst int, ordered boolean)
  WHERE (coalesce(l.running, l.count) IS NOT NULL OR l.ordered) AND NOT EXISTS (SELECT FROM limits o WHERE o.key = n.key)
  ORDER BY n.key
  ON CONFLICT DO NOTHING;
  SELECT n.key INTO missing FROM jsonb_to_recordset(named) AS n (key text) WHERE NOT EXISTS (SELECT FROM limits o WHERE o.key = n.key) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'limit.key: there is no limit named "%"', missing
      USING ERRCODE = '22023', HINT = 'Say how much it allows, as in {"key": "stripe", "running": 5}, or set it once for all jobs that name it.';
  END IF;
END
$$;

-- Refuses what a tenant may not submit: more per second, or more waiting, than its limits say. `waiting_count` is never too low: it
-- grows with every submission and is counted anew when it seems too much, once a second at most. A rival's open transaction is waited
-- for only briefly: then what is known decides, and the limit may be passed by what that transaction holds.
CREATE FUNCTION sexton.check_submissions(names text[], counts int[], moment timestamptz) RETURNS text[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
  given record;
  known tenants;
  submitted int;
  tokens int;
  counted_tenants text[] := '{}';
  is_locked boolean;
BEGIN
  FOR given IN
    SELECT t.name, g.count FROM unnest(names, counts) AS g(name, count) JOIN tenants t ON t.name = g.name
    WHERE t.waiting_max IS NOT NULL OR t.submit_rate IS NOT NULL ORDER BY t.name
  LOOP
    submitted := given.count;
    BEGIN
      SELECT * INTO known FROM tenants t WHERE t.name = given.name FOR UPDATE;
      is_locked := true;
    EXCEPTION WHEN lock_not_available THEN
      SELECT * INTO known FROM tenants t WHERE t.name = given.name;
      is_locked := false;
    END;
    IF known.waiting_max IS NOT NULL THEN
      counted_tenants := counted_tenants || known.name;
      IF known.waiting_count + submitted > known.waiting_max AND (known.counted_at < moment - interval '1 second' OR known.counted_at > moment) THEN
        SELECT count(*), moment INTO known.waiting_count, known.counted_at FROM (
          SELECT FROM runs r WHERE r.tenant = known.name AND r.counted AND r.state <> 'running' ORDER BY r.tenant LIMIT known.waiting_max + 1) w;
        IF is_locked THEN
          UPDATE tenants t SET waiting_count = known.waiting_count, counted_at = moment WHERE t.name = known.name;
        END IF;
      END IF;
      IF known.waiting_count + submitted > known.waiting_max THEN
        RAISE EXCEPTION 'tenant: "%" has % runs waiting, and may have %', known.name, known.waiting_count, known.waiting_max USING ERRCODE = 'SX429',
          DETAIL = json_build_object('limit', 'waiting', 'tenant', known.name, 'max', known.waiting_max, 'retry_after_s', 1),
          HINT = 'Submit again when some have started, or raise waiting_max of the tenant.';
      END IF;
    END IF;
    IF known.submit_rate IS NOT NULL THEN
      tokens := sexton.tokens(known.bucket_at, known.submit_rate, known.submit_burst, moment);
      IF submitted > tokens THEN
        RAISE EXCEPTION 'tenant: "%" may submit % jobs per second, % at once', known.name, known.submit_rate, known.submit_burst USING ERRCODE = 'SX429',
          DETAIL = json_build_object('limit', 'submit_rate', 'tenant', known.name, 'max', known.submit_rate,
                                     'retry_after_s', least(3600, (least(submitted, known.submit_burst) - tokens) / known.submit_rate)),
          HINT = CASE WHEN submitted > known.submit_burst THEN 'Submit fewer at once, or raise submit_burst of the tenant.'
                      ELSE 'Submit more slowly, or raise submit_rate of the tenant.' END;
      END IF;
    END IF;
    IF is_locked THEN
      UPDATE tenants t SET waiting_count = known.waiting_count + submitted,
        bucket_at = CASE WHEN known.submit_rate IS NOT NULL
          THEN sexton.drawn(known.bucket_at, known.submit_rate, known.submit_burst, moment, submitted) ELSE known.bucket_at END
      WHERE t.name = known.name;
    END IF;
  END LOOP;
  RETURN counted_tenants;
END
$$;

-- `jobs` is an array of documents: task, payload, queue, lane, tenant, name, run_at or delay_s, timeout_s, at_most_once, policy,
-- tags, submitted_by, trace; key with key_ttl_s and fingerprint; unique {by, holds_s, replace};
-- limit {key, running, count, per_s, burst, ordered}. What a document leaves out comes from the task's registered options, then from its
-- queue's, then from the product's defaults. Answers in the order given; `created` is false where
-- an idempotency key or a unique job stood already. A job due now is ready at once.
CREATE OR REPLACE FUNCTION sexton.submit_jobs(jobs jsonb, notify boolean DEFAULT true, at timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  fresh uuid[];    -- the id each document gets if it is new
  chosen uuid[];   -- the id it is answered with
  ready_queues text[];
  due_soon boolean;
  counted_tenants text[];
  named_limits jsonb;
BEGIN
  PERFORM sexton.ensure_partitions(moment);
  -- One microsecond apart, so that jobs of one call keep their order.
  SELECT array_agg(sexton.uuid7(g.micros) ORDER BY g.micros) INTO fresh
  FROM generate_series(micros, micros + jsonb_array_length(jobs) - 1) AS g(micros);
  chosen := fresh;
  IF jobs @? '$[*].key' THEN
    chosen := sexton.claim_keys(jobs, chosen, moment);
  END IF;
  IF jobs @? '$[*].unique' THEN
    chosen := sexton.claim_unique(jobs, fresh, chosen, moment);
    -- A job that gave way to an equal one was never made: its key, and whoever was answered with it, get the equal one.
    UPDATE idempotency_keys k SET job_id = chosen[d.ord]
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
    WHERE k.tenant = coalesce(d.doc->>'tenant', 'default') AND k.key = d.doc->>'key' AND k.job_id = fresh[d.ord]
      AND chosen[d.ord] <> fresh[d.ord];
    SELECT array_agg(coalesce(chosen[m.ord], c.id) ORDER BY c.ord) INTO chosen
    FROM unnest(chosen) WITH ORDINALITY AS c(id, ord)
    LEFT JOIN unnest(fresh) WITH ORDINALITY AS m(id, ord) ON m.id = c.id AND m.ord <> c.ord;
  END IF;

  IF EXISTS (SELECT FROM tenants t WHERE t.waiting_max IS NOT NULL OR t.submit_rate IS NOT NULL) THEN
    SELECT sexton.check_submissions(array_agg(d.tenant), array_agg(d.count), moment) INTO counted_tenants FROM (
      SELECT coalesce(d.doc->>'tenant', 'default') AS tenant, count(*)::int AS count
      FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord) WHERE chosen[d.ord] = fresh[d.ord] GROUP BY 1) d;
  END IF;

  WITH given AS MATERIALIZED (
    SELECT s.*, fresh[s.ord] AS id FROM ROWS FROM (jsonb_to_recordset(jobs) AS (
      task text, payload jsonb, queue text, lane smallint, tenant text, name text, run_at timestamptz, delay_s float8, timeout_s real,
      at_most_once boolean, policy jsonb, tags text[], submitted_by text, trace text, key text, "limit" jsonb)
    ) WITH ORDINALITY AS s (
      task, payload, queue, lane, tenant, name, run_at, delay_s, timeout_s, at_most_once, policy, tags, submitted_by, trace, key, "limit", ord)
    WHERE chosen[s.ord] = fresh[s.ord]
  ), filled AS MATERIALIZED (
    SELECT f.*, sexton.limit_key_of(f.policy, f.payload) AS limit_key FROM (
    SELECT g.id, g.task, coalesce(g.payload, jobs->(g.ord::int - 1)->'payload', '{}') AS payload, g.name, g.tags, g.submitted_by, g.trace, g.key,
      coalesce(g.tenant, 'default') AS tenant,
      coalesce(g.queue, t.options->>'queue', 'default') AS queue,
      coalesce(g.lane, (t.options->>'lane')::smallint, 2::smallint) AS lane,
      nullif(coalesce(g.timeout_s, (t.options->>'timeout_s')::real, q.timeout_s, 30), 0) AS timeout_s,
      coalesce(g.at_most_once, (t.options->>'at_most_once')::boolean, false) AS at_most_once,
      CASE WHEN coalesce(t.options->'policy', t.options->'limit', q.policy, g."limit") IS NULL THEN g.policy ELSE nullif(
        coalesce(q.policy, '{}') || coalesce(t.options->'policy', '{}') || coalesce(g.policy, '{}')
        || CASE WHEN coalesce(g."limit", t.options->'limit') IS NULL THEN '{}' ELSE jsonb_build_object('limit', coalesce(g."limit", t.options->'limit')) END,
        '{}') END AS policy,
      greatest(coalesce(g.run_at, moment + make_interval(secs => g.delay_s), moment), moment) AS due_at,
      coalesce(g.run_at, moment + make_interval(secs => g.delay_s), moment) AS fire_at
    FROM given g LEFT JOIN tasks t ON t.name = g.task
    LEFT JOIN queues q ON q.name = coalesce(g.queue, t.options->>'queue', 'default') OFFSET 0) f
  ), defined AS (
    INSERT INTO jobs (id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, idempotency_key, tags,
                      submitted_at, submitted_by, trace)
    SELECT id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, key, tags,
      moment, coalesce(submitted_by, session_user), trace
    FROM filled ORDER BY id
  ), placed AS (
    INSERT INTO runs (id, job_id, fire_at, due_at, start_by, deadline_at, timeout_s, lease_s, lane, partition, at_most_once, state,
                      origin, queue, tenant, task, limit_key, counted)
    -- A one-time job has one run, under the job's own id.
    SELECT id, id, fire_at, due_at,
      due_at + make_interval(secs => (policy->>'start_within_s')::float8),
      due_at + make_interval(secs => (policy->>'deadline_s')::float8),
      timeout_s, (policy->>'lease_s')::real, lane, sexton.partition_of(id), at_most_once,
      CASE WHEN due_at <= moment THEN 'ready' ELSE 'waiting' END, 'now', queue, tenant, task,
      limit_key, counted_tenants IS NOT NULL AND tenant = ANY (counted_tenants)
    FROM filled ORDER BY id
  )
  SELECT array_agg(DISTINCT queue) FILTER (WHERE due_at <= moment),
    coalesce(bool_or(due_at > moment AND due_at < moment + interval '3 seconds'), false),
    jsonb_agg(DISTINCT jsonb_build_object('key', limit_key, 'limit', policy->'limit')) FILTER (WHERE limit_key IS NOT NULL)
  INTO ready_queues, due_soon, named_limits FROM filled;
  IF named_limits IS NOT NULL THEN
    PERFORM sexton.make_limits(named_limits, moment);
  END IF;

  IF jobs @? '$[*].tags' THEN
    INSERT INTO job_tags (tag, job_id)
    SELECT tag, fresh[d.ord]
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
    CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(d.doc->'tags') WHEN 'array' THEN d.doc->'tags' ELSE '[]' END) AS tag
    WHERE chosen[d.ord] = fresh[d.ord]
    ON CONFLICT DO NOTHING;  -- a tag given twice
  END IF;

  IF notify THEN
    PERFORM sexton.announce(ready_queues, due_soon);
  END IF;
  RETURN QUERY SELECT c.id, c.id = fresh[c.ord] FROM unnest(chosen) WITH ORDINALITY AS c(id, ord) ORDER BY c.ord;
END
$$;

-- What queues need from a promoter now and then: runs that waited long enough rise a lane, and workers are told when a queue that is
-- released at a certain pace may go on. `next_s` is when to look again.
CREATE FUNCTION sexton.tend_queues(at timestamptz DEFAULT NULL, OUT queues text[], OUT aged int, OUT next_s float8)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  known queues;
  risen int;
BEGIN
  queues := '{}';
  aged := 0;
  FOR known IN SELECT * FROM queues q WHERE q.ageing_s IS NOT NULL OR q.release_rate IS NOT NULL ORDER BY q.name LOOP
    IF known.ageing_s IS NOT NULL THEN
      -- Each tenant's oldest first, a bounded number at a time; whoever is being claimed needs to rise no more.
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
      GET DIAGNOSTICS risen = ROW_COUNT;
      aged := aged + risen;
      next_s := least(next_s, CASE WHEN risen > 0 THEN 0.05 ELSE least(greatest(known.ageing_s / 10, 0.1), 10) END);
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

-- Slots whose run does not hold them: there are none, unless somebody changed runs by hand. The guardian looks.
CREATE FUNCTION sexton.mend_slots() RETURNS int LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  mended int;
BEGIN
  WITH stray AS MATERIALIZED (
    SELECT s.key, s.n FROM slots s WHERE s.run_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM runs r WHERE r.id = s.run_id AND (
        (s.key = r.limit_key AND r.slot = s.n) OR (s.key = '@tenant:' || r.tenant AND r.tenant_slot = s.n)))
    FOR UPDATE SKIP LOCKED
  )
  UPDATE slots s SET run_id = NULL FROM stray WHERE s.key = stray.key AND s.n = stray.n;
  GET DIAGNOSTICS mended = ROW_COUNT;
  RETURN mended;
END
$$;
-- Runs that wait for a limit are taken back like those that wait for a worker.
CREATE OR REPLACE FUNCTION sexton.unplan(job_ids uuid[], moment timestamptz, states text[] DEFAULT '{waiting,ready,parked,blocked}', told text DEFAULT 'skipped')
RETURNS TABLE (job_id uuid, cursor_at timestamptz, removed_count int, begun_count int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  taken_back jsonb;
  cursors jsonb;
BEGIN
  WITH removed AS (
    DELETE FROM runs r
    WHERE r.job_id = ANY (job_ids) AND r.origin = 'schedule' AND r.token = 0 AND r.state = ANY (states)
    RETURNING r.id, r.job_id, r.fire_at, r.due_at, r.job_version, r.lane, r.queue, r.tenant, r.task
  )
  SELECT coalesce(jsonb_agg(removed), '[]') INTO taken_back FROM removed;

  SELECT jsonb_agg(c) INTO cursors FROM (
    SELECT j.id AS job_id,
      greatest(
        least(t.first_at - interval '1 microsecond', j.plan_cursor_at, moment),
        (SELECT max(r.fire_at) FROM runs r WHERE r.job_id = j.id AND r.origin = 'schedule'),
        -- No jitter reaches further than half an hour.
        (SELECT max(e.fire_at) FROM executions e
         WHERE e.job_id = j.id AND e.id >= sexton.uuid7_floor(moment - interval '1 hour') AND e.origin = 'schedule')) AS cursor_at,
      coalesce(t.removed_count, 0) AS removed_count, (SELECT count(*)::int FROM runs r WHERE r.job_id = j.id AND r.token > 0) AS begun_count
    FROM jobs_recurring j LEFT JOIN (
      SELECT r.job_id, min(r.fire_at) AS first_at, count(*)::int AS removed_count
      FROM jsonb_to_recordset(taken_back) AS r (job_id uuid, fire_at timestamptz) GROUP BY r.job_id
    ) t ON t.job_id = j.id
    WHERE j.id = ANY (job_ids)) c;

  IF taken_back <> '[]' THEN
    PERFORM sexton.ensure_partitions(moment);
    INSERT INTO executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane, origin, status, queue, tenant,
                            task, reason)
    SELECT sexton.uuid7((extract(epoch FROM moment) * 1000000)::bigint + row_number() OVER (ORDER BY r.fire_at)), r.job_id, r.id, r.fire_at, r.due_at,
      moment, 0, r.job_version, 0, 0, r.lane, 'schedule', told, r.queue, r.tenant, r.task, 'taken back before it began, when a later fire was decided'
    FROM jsonb_to_recordset(taken_back) AS r (id uuid, job_id uuid, fire_at timestamptz, due_at timestamptz, job_version int, lane smallint,
      queue text, tenant text, task text)
    JOIN jsonb_to_recordset(cursors) AS c (job_id uuid, cursor_at timestamptz) ON c.job_id = r.job_id AND r.fire_at <= c.cursor_at;
  END IF;
  RETURN QUERY SELECT c.* FROM jsonb_to_recordset(coalesce(cursors, '[]')) AS c (job_id uuid, cursor_at timestamptz, removed_count int, begun_count int);
END
$$;

-- As before; the limit of what nobody has begun follows the job.
CREATE OR REPLACE FUNCTION sexton.revise(revised uuid, new sexton.schedule_document, moment timestamptz, OUT removed_count int, OUT begun_count int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off AS $$
DECLARE
  old jobs_recurring;
  stays boolean;
  cursor_at timestamptz;
BEGIN
  SELECT j.* INTO old FROM jobs_recurring j WHERE j.id = revised;
  -- Another name is another seed of jitter and `H`.
  stays := sexton.same_rule(old.schedule, new.schedule) AND old.name IS NOT DISTINCT FROM new.name;
  IF stays THEN
    SELECT old.plan_cursor_at, 0, count(*) INTO cursor_at, removed_count, begun_count FROM runs r WHERE r.job_id = revised AND r.token > 0;
  ELSE
    SELECT u.cursor_at, u.removed_count, u.begun_count INTO cursor_at, removed_count, begun_count FROM sexton.unplan(ARRAY[revised], moment) u;
  END IF;
  INSERT INTO job_versions (job_id, version, queue, lane, name, payload, policy, timeout_s, tags, fire_at, replaced_at, replaced_by, schedule, recurrence)
  VALUES (old.id, old.version, old.queue, old.lane, old.name, old.payload, old.policy, old.timeout_s, old.tags, coalesce(cursor_at, moment), moment,
          new.submitted_by, old.schedule, old.recurrence);
  UPDATE jobs_recurring j SET version = j.version + 1, task = new.task, name = new.name, queue = new.queue, lane = new.lane,
    payload = new.payload, policy = new.policy, timeout_s = new.timeout_s, at_most_once = new.at_most_once, tags = new.tags,
    recurrence = new.recurrence, schedule = CASE WHEN sexton.same_rule(j.schedule, new.schedule) THEN j.schedule ELSE new.schedule END,
    fire_count = CASE WHEN sexton.same_rule(j.schedule, new.schedule) THEN greatest(j.fire_count - removed_count, 0) ELSE 0 END,
    plan_cursor_at = cursor_at, plan_at = CASE WHEN stays THEN j.plan_at WHEN j.paused_at IS NULL THEN moment END
  WHERE j.id = revised;
  UPDATE runs r SET job_version = old.version + 1, task = new.task, queue = new.queue, lane = new.lane, aged = 0,
    limit_key = sexton.limit_key_of(new.policy, new.payload), slot = NULL,
    state = CASE WHEN r.state NOT IN ('ready', 'parked') THEN r.state WHEN new.policy ? 'limit' THEN 'parked' ELSE 'ready' END, at_most_once = new.at_most_once,
    timeout_s = new.timeout_s, lease_s = (new.policy->>'lease_s')::real,
    start_by = CASE WHEN r.origin <> 'backfill' THEN r.due_at + make_interval(secs => (new.policy->>'start_within_s')::float8) END,
    deadline_at = CASE WHEN r.origin <> 'backfill' THEN r.due_at + make_interval(secs => (new.policy->>'deadline_s')::float8) END,
    -- What was let in stays in: several at once may have been legal until now.
    overlap = CASE WHEN r.state IN ('ready', 'parked') THEN r.overlap WHEN r.origin = 'backfill' THEN least(r.overlap, sexton.overlap_of(new.recurrence))
                   ELSE sexton.overlap_of(new.recurrence) END
  WHERE r.job_id = revised AND r.token = 0 AND r.state IN ('waiting', 'ready', 'parked', 'blocked') AND r.origin <> 'replay';  -- that is of the version it replays
  DELETE FROM job_tags t WHERE t.job_id = revised AND t.tag <> ALL (coalesce(new.tags, '{}'));
  INSERT INTO job_tags (tag, job_id) SELECT DISTINCT tag, revised FROM unnest(new.tags) AS tag ON CONFLICT DO NOTHING;
END
$$;

-- As before; what a schedule leaves out may come from its queue, and its jitter from its tenant.
CREATE OR REPLACE FUNCTION sexton.read_schedules(schedules jsonb) RETURNS SETOF sexton.schedule_document
LANGUAGE sql STABLE SET search_path = sexton, pg_temp AS $$
  SELECT d.ord::int, g.task, g.name, coalesce(g.tenant, 'default'),
    coalesce(g.queue, t.options->>'queue', 'default'),
    coalesce(g.lane, (t.options->>'lane')::smallint, 2::smallint),
    coalesce(d.doc->'payload', '{}'),
    nullif(coalesce(q.policy, '{}') || coalesce(t.options->'policy', '{}') || coalesce(g.policy, '{}')
      || CASE WHEN coalesce(d.doc->'limit', t.options->'limit') IS NULL THEN '{}'
           ELSE jsonb_build_object('limit', coalesce(d.doc->'limit', t.options->'limit')) END, '{}'),
    nullif(coalesce(g.timeout_s, (t.options->>'timeout_s')::real, q.timeout_s, 30), 0),
    coalesce(g.at_most_once, (t.options->>'at_most_once')::boolean, false),
    g.tags, coalesce(g.submitted_by, session_user), g.trace,
    CASE WHEN g.schedule ? 'jitter' OR coalesce(q.jitter_s, n.jitter_s, 0) = 0 THEN g.schedule
      ELSE g.schedule || jsonb_build_object('jitter', jsonb_build_object('max', coalesce(q.jitter_s, n.jitter_s))) END,
    g.recurrence, coalesce(g.on_name, 'update')
  FROM jsonb_array_elements(schedules) WITH ORDINALITY AS d(doc, ord)
  CROSS JOIN LATERAL jsonb_populate_record(NULL::sexton.schedule_document, d.doc) AS g
  LEFT JOIN tasks t ON t.name = g.task
  LEFT JOIN queues q ON q.name = coalesce(g.queue, t.options->>'queue', 'default')
  LEFT JOIN tenants n ON n.name = coalesce(g.tenant, 'default')
$$;

CREATE FUNCTION sexton.make_limits_of_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sexton.make_limits(jsonb_build_array(jsonb_build_object('key', sexton.limit_key_of(NEW.policy, NEW.payload), 'limit', NEW.policy->'limit')),
                             clock_timestamp());
  RETURN NULL;
END
$$;
CREATE TRIGGER make_limits_of_schedule AFTER INSERT OR UPDATE OF policy, payload ON sexton.jobs_recurring FOR EACH ROW
WHEN (NEW.policy ? 'limit') EXECUTE FUNCTION sexton.make_limits_of_schedule();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
