-- Ends or returns the runs of many reports: what services call. The plain reports, of which nearly every batch consists, come as arrays and
-- go through one short statement; all others are documents for finish_runs, which explains them. A plain report says that its run
-- succeeded and its job is completed, and when; it may have a result. It has no key, reason, error, progress or output.
-- Promises: those of finish_runs (rule "one path in, one path out"): one call, all or nothing, the same rows in the answer. The short
-- statement ends only runs under their fence (`worker_ids` and `tokens`) that hold no slot of a limit; a plain report of any other run goes to
-- finish_runs. A requested cancel does not matter here: a run that succeeded has succeeded.
-- Arguments: `started_s` and `took_s` as in finish_runs. `results`: a JSON array with one entry for each run, null for none; null if no run
-- has one. `others` is null if there are none.
-- Plans: as in claim_runs the runs are joined by number, because the planner expects ten entries of a list and may compare all with all.
-- Each condition names the number, also that on the slots: otherwise the planner expects one run, and compares all with all where page
-- reads seem expensive. An element of a jsonb array is found at once, one of a list of jsonb only by reading those before it. docs/adr/029 has the figures.
-- Called by: store/work/runs.sql. Locks: the runs, in id order (rule "lock in id order"): of two statements that lock one after the other, those of
-- both first. Only a plain report that finish_runs has to take, because its run got a slot since the claim, comes later. Those of finish_runs.
CREATE OR REPLACE FUNCTION sexton.finish_batch(
  run_ids uuid[], worker_ids uuid[], tokens bigint[], started_s float8[], took_s float8[], results jsonb, others jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (run_id uuid, execution_id uuid, state text)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  seed bigint := sexton.dice();  -- for all ids of this call
  ended_count int;
BEGIN
  IF jsonb_array_length(results) <> cardinality(run_ids) THEN
    RAISE EXCEPTION 'results: % entries for % runs', jsonb_array_length(results), cardinality(run_ids) USING ERRCODE = '22023';
  END IF;
  IF run_ids <> '{}' THEN
    PERFORM sexton.ensure_partitions(moment);
    IF others <> '[]' THEN
      PERFORM FROM runs r WHERE r.id = ANY (run_ids || ARRAY(SELECT (o.doc->>'run_id')::uuid FROM jsonb_array_elements(others) AS o(doc)))
      ORDER BY r.id FOR UPDATE;
    END IF;
    RETURN QUERY
    WITH ended AS (
      DELETE FROM runs r USING generate_series(1, cardinality(run_ids)) AS p(ord)
      WHERE r.id = ANY (run_ids) AND r.id = run_ids[p.ord] AND r.token = tokens[p.ord] AND r.worker_id = worker_ids[p.ord]
        AND (r.slot IS NULL AND r.tenant_slot IS NULL) = (p.ord > 0)
      RETURNING sexton.uuid7(micros + p.ord, hashint8extended(micros + p.ord, seed)) AS execution_id, r.id, r.job_id, r.worker_id, r.fire_at, r.due_at,
        r.claimed_at + make_interval(secs => started_s[p.ord]) AS started_at,
        r.claimed_at + make_interval(secs => started_s[p.ord] + took_s[p.ord]) AS ended_at, r.token, r.job_version, r.seq, r.attempt,
        r.lane + r.aged AS lane, r.origin, r.queue, r.tenant, r.task, nullif(results->(p.ord - 1), 'null') AS result
    ), history AS (
      INSERT INTO executions (id, job_id, run_id, worker_id, fire_at, due_at, started_at, ended_at, token, job_version, seq, attempt,
                              lane, origin, status, queue, tenant, task, result)
      SELECT e.execution_id, e.job_id, e.id, e.worker_id, e.fire_at, e.due_at, e.started_at, e.ended_at, e.token, e.job_version, e.seq, e.attempt,
        e.lane, e.origin, 'succeeded', e.queue, e.tenant, e.task, e.result
      FROM ended e
    ), job_endings AS (
      INSERT INTO endings (job_id, execution_id, ended_at, status)
      SELECT e.job_id, e.execution_id, moment, 'completed' FROM ended e WHERE e.job_id < '80000000-0000-0000-0000-000000000000'
    )
    SELECT e.id, e.execution_id, NULL::text FROM ended e;
    GET DIAGNOSTICS ended_count = ROW_COUNT;
    IF ended_count < cardinality(run_ids) THEN  -- the lease of some was lost; those that hold a slot are still there
      SELECT coalesce(others, '[]') || coalesce(jsonb_agg(jsonb_build_object(
        'run_id', r.id, 'worker_id', r.worker_id, 'token', r.token, 'next', 'end', 'status', 'succeeded', 'ending', 'completed',
        'started_s', started_s[p.ord], 'took_s', took_s[p.ord], 'result', results->(p.ord - 1)) ORDER BY p.ord), '[]') INTO others
      FROM generate_series(1, cardinality(run_ids)) AS p(ord)
      CROSS JOIN LATERAL (
        SELECT o.id, o.worker_id, o.token FROM runs o WHERE o.id = run_ids[p.ord] AND o.token = tokens[p.ord] AND o.worker_id = worker_ids[p.ord] LIMIT 1) r;
    END IF;
  END IF;
  IF others <> '[]' THEN
    RETURN QUERY SELECT f.run_id, f.execution_id, f.state FROM sexton.finish_runs(others, moment) f;
  END IF;
END
$$;
