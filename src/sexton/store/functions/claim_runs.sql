-- The claim: gives a worker up to `wanted` ready runs and marks them running.
-- Promises: lanes in strict order over all queues of the worker, queues in the order given, tenants fairly inside (pick_runs), limits
-- respected (admit_runs). A run that a limit keeps back is parked, outside the index that claims read, and the next in line gets
-- its chance. The token of each claimed run grows by one. A worker that was declared dead, or is in quarantine, claims nothing, nor does a
-- remote worker while it holds suspects (rule "suspects apart"). Only tasks that the worker
-- knows are claimed (rule "claim only known tasks").
-- `turns` says where the last claim of this worker stopped: {queue: {lane: [tenant, turn, cursors, only]}}. If there is too little
-- ahead of the cursors, the claim also looks behind them, unless `only` is true (docs/adr/019).
-- Plans: the claim is joined with what it picked by number. As lists, of which the planner expects ten entries, a nested loop over
-- both looked as cheap as a hash join once `runs` had grown and was analysed; with 400 in each it took more than the rest of the
-- claim. enable_material would make such a loop look cheap, so it is off.
-- The definitions are fetched by one scan of a list, and joined by a full join, which is never a nested loop; first and last id keep the scan
-- out of the other partitions of `jobs`. Only the columns of the answer are returned by the update.
-- Called by: store/work/runs.sql. Locks: the claimed runs (FOR UPDATE SKIP LOCKED); the rows of queues that have a release rate, for which
-- it waits 50 ms at most, once for all of them (lock_queue, may_wait); what admit_runs locks.
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
  lane_of_queue record;
  picked record;
  admitted boolean[];
  taken_slots int[];
  taken_tenant_slots int[];
  parked int;
  last_tenant text;
  last_turn int;
  cursors jsonb;
  is_ahead_only boolean;
  has_admitted boolean := false;
  left_to_take int := wanted;
  left_to_look int := 100;
  allowed int;
  got int;
BEGIN
  IF NOT EXISTS (SELECT FROM workers w WHERE w.id = worker AND w.lost_at IS NULL AND NOT w.quarantine AND (
    w.lease_s IS NULL OR NOT EXISTS (SELECT FROM runs r WHERE r.worker_id = w.id AND r.state = 'running' AND r.company > 0))) THEN
    RETURN;
  END IF;
  FOR lane_of_queue IN
    SELECT q.queue, l.lane, t.last, known.release_rate
    FROM unnest(queues) WITH ORDINALITY AS q(queue, ord) CROSS JOIN unnest(ARRAY[0, 1, 2, 3]::smallint[]) AS l(lane)
    CROSS JOIN LATERAL (SELECT f.last, f.last->2->(f.last->>0) AS cursor FROM (SELECT turns->q.queue->l.lane::text AS last) f) AS t
    LEFT JOIN LATERAL (SELECT o.paused_at, o.release_rate FROM queues o WHERE o.name = q.queue LIMIT 1) AS known ON true
    -- A plain EXISTS could make PostgreSQL read all ready runs.
    WHERE known.paused_at IS NULL AND coalesce(
      t.cursor IS NOT NULL AND (t.last->>3)::boolean OR NULL,
      (SELECT true FROM runs r WHERE t.cursor IS NOT NULL AND r.state = 'ready' AND r.queue = q.queue AND r.lane = l.lane AND r.tenant = t.last->>0
         AND (r.due_at, r.id) > ((t.cursor->>0)::timestamptz, (t.cursor->>1)::uuid) ORDER BY r.tenant, r.due_at, r.id LIMIT 1),
      (SELECT true FROM runs r WHERE r.state = 'ready' AND r.queue = q.queue AND r.lane = l.lane ORDER BY r.tenant, r.due_at, r.id LIMIT 1))
    ORDER BY l.lane, q.ord
  LOOP
    allowed := left_to_take;
    IF lane_of_queue.release_rate IS NOT NULL THEN
      SELECT least(allowed, sexton.tokens(o.bucket_at, o.release_rate, o.release_burst, moment)) INTO allowed
      FROM queues o WHERE o.name = lane_of_queue.queue FOR UPDATE SKIP LOCKED;
      IF NOT FOUND AND sexton.may_wait() AND sexton.lock_queue(lane_of_queue.queue) THEN  -- else it is null: the other queues go on
        SELECT least(left_to_take, sexton.tokens(o.bucket_at, o.release_rate, o.release_burst, moment)) INTO allowed FROM queues o WHERE o.name = lane_of_queue.queue;
      END IF;
    END IF;
    last_tenant := coalesce(lane_of_queue.last->>0, '');
    last_turn := coalesce((lane_of_queue.last->>1)::int, 0);
    cursors := lane_of_queue.last->2;
    is_ahead_only := coalesce((lane_of_queue.last->>3)::boolean, false);
    WHILE allowed > 0 LOOP
      SELECT * INTO picked FROM sexton.pick_runs(
        lane_of_queue.queue, lane_of_queue.lane, tasks, allowed, ahead, last_tenant, last_turn, cursors, moment);
      IF picked.ids IS NULL AND picked.may_have_more AND left_to_look > 0 THEN
        -- Another session has locked all runs whose turn it is: continue with the next tenants.
        left_to_look := left_to_look - 1;
        last_tenant := picked.stopped_at;
        last_turn := 0;
        CONTINUE;
      END IF;
      IF picked.ids IS NULL THEN
        EXIT WHEN cursors IS NULL OR is_ahead_only;
        cursors := NULL;
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
        RETURNING p.ord, r.id, r.job_id, r.token, r.attempt, r.lost_count, r.at_most_once, r.seq, r.origin, r.deadline_at, r.job_version, r.fire_at,
          r.due_at, r.timeout_s, r.queue, r.tenant, r.lane, r.task, r.limit_key, r.tenant_slot
      )
      SELECT c.id, c.job_id, worker, c.token, c.attempt, c.lost_count, c.at_most_once, c.seq, c.origin,
        extract(epoch FROM c.deadline_at - moment)::float8,
        CASE WHEN c.limit_key IS NULL THEN j.policy ELSE nullif(j.policy - 'limit', '{}') END, c.job_version, c.fire_at, c.due_at, moment, c.timeout_s::float8,
        c.queue, c.tenant, c.lane, c.task, j.name, j.payload, j.idempotency_key,
        CASE WHEN j.idempotency_key IS NOT NULL THEN (
          SELECT k.execution_id FROM idempotency_keys k  -- an expired key may belong to another job now
          WHERE k.tenant = c.tenant AND k.key = j.idempotency_key AND k.job_id = c.job_id AND k.completed_at IS NOT NULL LIMIT 1) END,
        j.trace, picked.turns[c.ord], c.limit_key IS NOT NULL OR c.tenant_slot IS NOT NULL
      FROM claimed c FULL JOIN (
        SELECT o.id, o.policy, o.name, o.payload, o.idempotency_key, o.trace FROM jobs o
        WHERE o.id = ANY (ARRAY(SELECT c.job_id FROM claimed c))
          AND o.id >= (SELECT c.job_id FROM claimed c ORDER BY c.job_id LIMIT 1)
          AND o.id <= (SELECT c.job_id FROM claimed c ORDER BY c.job_id DESC LIMIT 1)
      ) j ON j.id = c.job_id
      ORDER BY c.ord;
      GET DIAGNOSTICS got = ROW_COUNT;
      left_to_take := left_to_take - got;
      allowed := allowed - got;
      IF lane_of_queue.release_rate IS NOT NULL THEN
        UPDATE queues o SET bucket_at = sexton.drawn(o.bucket_at, o.release_rate, o.release_burst, moment, got) WHERE o.name = lane_of_queue.queue;
      END IF;
      -- The runs after the parked ones have their turn, and no lower lane is served while this one has runs, even behind a
      -- cursor.
      EXIT WHEN coalesce(parked, 0) = 0 AND NOT picked.may_have_more AND (cursors IS NULL OR is_ahead_only OR cardinality(picked.ids) >= allowed + got);
      IF cardinality(picked.ids) < allowed + got AND NOT is_ahead_only THEN
        cursors := NULL;
      END IF;
      last_tenant := picked.stopped_at;
      last_turn := picked.turns[cardinality(picked.turns)];
    END LOOP;
    EXIT WHEN left_to_take <= 0;
  END LOOP;
END
$$;
