-- The one way a run ends or goes back (rule "one path in, one path out"): reporter, ctx.transaction(), drain, reconciliation, sweeper,
-- cancel and expiry all call it.
-- Promises: every row of history is written by the statement that ended its try. Each report names the run and the fence it was seen
-- under: worker_id and token (worker_id null: no worker holds it). A report whose fence has moved on changes nothing and is not in the
-- answer. `next` is 'end' or 'again'; a requested cancel turns every 'again' into an end, and a burial into a plain cancellation.
-- Losses are counted apart from attempts (rule "losses have their own budget"). Slots go back in the statement that ends the try, and
-- the next run in line is released. A run with an ordered key keeps its slot between attempts. A run that ageing moved to a higher lane
-- returns to its own lane. A run that was lost is a suspect: from the second time on it is quarantined, in a company of half of what its worker held; a run
-- that is given back or snoozes stays what it was, and every other report ends the suspicion (rule "suspects apart").
-- Fields of a report: run_id, worker_id, token, next, status, ending (completed | failed | cancelled), started_s and took_s (from the
-- claim, from the start), delay_s, spends (attempt | loss | nothing), reason, error, result, progress, output, permanent, replay_s,
-- key (the idempotency key that this completes), held (of a lost run: how many its worker held; the last release does not say),
-- batch_limit (of a run whose call failed together with others: the most runs of its next call).
-- Plans: JSON beats parallel arrays here: 17.5 against 18 to 22 µs per run and a third less client CPU, measured on PostgreSQL 18 in
-- batches of 500. `id = ANY (ARRAY(…))` pins an index scan in id order, whatever the planner believes about sizes. Runs that go back
-- are found one by one and written where they were found; otherwise a thousand were compared with a thousand, twice.
-- Called by: claim_unique, end_fires, finish_batch, finish_each. Locks: the runs, in id order (rule "lock in id order"); the slots they
-- hold; what release_parked locks.
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
      replay_s float8, key text, held int, batch_limit smallint)
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
      r.slot IS NOT NULL AND EXISTS (SELECT FROM limits l WHERE l.key = r.limit_key AND l.ordered) AS keeps_slot, r.slot,
      CASE WHEN x.status IN ('released', 'snoozed') OR (x.status = 'lost' AND x.held IS NULL) THEN r.company
        WHEN x.status = 'lost' AND r.company IS NULL THEN 0
        WHEN x.status = 'lost' THEN greatest(1, least(nullif(r.company, 0), (x.held + 1) / 2)) END AS company,
      CASE WHEN x.status IN ('released', 'snoozed', 'lost') THEN coalesce(x.batch_limit, r.batch_limit) END AS batch_limit
    FROM reported x CROSS JOIN LATERAL (SELECT o.ctid, o.* FROM runs o WHERE o.id = x.run_id LIMIT 1) r  -- by the primary key, each
    WHERE x.next = 'again' AND r.token = x.token AND r.worker_id = x.worker_id
  ), returned AS (
    UPDATE runs r SET
      state = CASE WHEN b.company > 0 THEN 'quarantined' WHEN coalesce(b.delay_s, 0) <= 0 THEN 'ready' ELSE 'waiting' END,
      company = b.company, batch_limit = b.batch_limit,
      due_at = CASE WHEN b.delay_s > 0 OR b.spends = 'attempt' THEN moment + make_interval(secs => b.delay_s) ELSE r.due_at END,
      attempt = r.attempt - (b.spends <> 'attempt')::int,
      lost_count = r.lost_count + (b.spends = 'loss')::int,
      start_by = CASE WHEN b.status = 'released' THEN r.start_by END,  -- `start_by` no longer applies after a start. A run that was given back has not started.
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
  ), given_back AS (  -- each is found by the primary key, for any plan; no other session writes a slot that is held
    UPDATE slots s SET run_id = NULL WHERE s.ctid = ANY (ARRAY(
      SELECT o.ctid FROM tries t CROSS JOIN LATERAL (
        SELECT h.ctid FROM slots h WHERE t.slot IS NOT NULL AND h.key = t.limit_key AND h.n = t.slot AND h.run_id = t.id LIMIT 1) o
      UNION ALL SELECT o.ctid FROM tries t CROSS JOIN LATERAL (
        SELECT h.ctid FROM slots h WHERE t.tenant_slot IS NOT NULL AND h.key = '@tenant:' || t.tenant AND h.n = t.tenant_slot AND h.run_id = t.id LIMIT 1) o))
  ), removed_output AS (
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
        OFFSET 0) r  -- by the primary key, never a scan of all ready runs
      WHERE r.state IN ('ready', 'quarantined')
      UNION SELECT unnest(woken_queues)),
      reports @? '$[*] ? (@.next == "again" && @.delay_s > 0 && @.delay_s < 3)');
  END IF;
  RETURN QUERY SELECT * FROM unnest(run_ids, execution_ids, states);
END
$$;
