-- The one way in (DESIGN rule 14): `submit` for any language, `submit_jobs` behind it and behind the SDK and the API.

-- `jobs` is an array of documents: task, payload, queue, lane, tenant, name, run_at or delay_s, timeout_s, at_most_once, policy,
-- tags, submitted_by, trace; key with key_ttl_s and fingerprint; unique {by, holds_s, replace}. What a document leaves out comes
-- from the task's registered options, then from the product's defaults. Answers in the order given; `created` is false where
-- an idempotency key or a unique job stood already. A job due now is ready at once.
CREATE FUNCTION sexton.submit_jobs(jobs jsonb, notify boolean DEFAULT true, at timestamptz DEFAULT NULL)
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
  END IF;

  WITH given AS MATERIALIZED (
    SELECT s.*, fresh[s.ord] AS id FROM ROWS FROM (jsonb_to_recordset(jobs) AS (
      task text, payload jsonb, queue text, lane smallint, tenant text, name text, run_at timestamptz, delay_s float8, timeout_s real,
      at_most_once boolean, policy jsonb, tags text[], submitted_by text, trace text, key text)
    ) WITH ORDINALITY AS s (
      task, payload, queue, lane, tenant, name, run_at, delay_s, timeout_s, at_most_once, policy, tags, submitted_by, trace, key, ord)
    WHERE chosen[s.ord] = fresh[s.ord]
  ), filled AS MATERIALIZED (
    SELECT g.id, g.task, coalesce(g.payload, jobs->(g.ord::int - 1)->'payload', '{}') AS payload, g.name, g.tags, g.submitted_by, g.trace, g.key,
      coalesce(g.tenant, 'default') AS tenant,
      coalesce(g.queue, t.options->>'queue', 'default') AS queue,
      coalesce(g.lane, (t.options->>'lane')::smallint, 2::smallint) AS lane,
      nullif(coalesce(g.timeout_s, (t.options->>'timeout_s')::real, 30), 0) AS timeout_s,
      coalesce(g.at_most_once, (t.options->>'at_most_once')::boolean, false) AS at_most_once,
      CASE WHEN t.options->'policy' IS NULL THEN g.policy ELSE nullif((t.options->'policy') || coalesce(g.policy, '{}'), '{}') END AS policy,
      greatest(coalesce(g.run_at, moment + make_interval(secs => g.delay_s), moment), moment) AS due_at,
      coalesce(g.run_at, moment + make_interval(secs => g.delay_s), moment) AS fire_at
    FROM given g LEFT JOIN tasks t ON t.name = g.task
  ), defined AS (
    INSERT INTO jobs (id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, idempotency_key, tags,
                      submitted_at, submitted_by, trace)
    SELECT id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, key, tags,
      moment, coalesce(submitted_by, session_user), trace
    FROM filled ORDER BY id
  ), placed AS (
    INSERT INTO runs (id, job_id, fire_at, due_at, start_by, deadline_at, timeout_s, lease_s, lane, partition, at_most_once, state,
                      origin, queue, tenant, task)
    -- A one-time job has one run, under the job's own id.
    SELECT id, id, fire_at, due_at,
      due_at + make_interval(secs => (policy->>'start_within_s')::float8),
      due_at + make_interval(secs => (policy->>'deadline_s')::float8),
      timeout_s, (policy->>'lease_s')::real, lane, sexton.partition_of(id), at_most_once,
      CASE WHEN due_at <= moment THEN 'ready' ELSE 'waiting' END, 'now', queue, tenant, task
    FROM filled ORDER BY id
  )
  SELECT array_agg(DISTINCT queue) FILTER (WHERE due_at <= moment),
    coalesce(bool_or(due_at > moment AND due_at < moment + interval '3 seconds'), false)
  INTO ready_queues, due_soon FROM filled;

  IF notify THEN
    PERFORM sexton.announce(ready_queues, due_soon);
  END IF;
  RETURN QUERY SELECT c.id, c.id = fresh[c.ord] FROM unnest(chosen) WITH ORDINALITY AS c(id, ord) ORDER BY c.ord;
END
$$;

-- Takes each idempotency key or finds who has it. The INSERT waits for a rival that has not committed (bounded by
-- lock_timeout), so concurrent duplicates give one job; keys are taken in order, so two batches cannot deadlock.
CREATE FUNCTION sexton.claim_keys(jobs jsonb, chosen uuid[], moment timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
#variable_conflict use_column
DECLARE
  answered uuid[];
  reused text;
BEGIN
  WITH keyed AS MATERIALIZED (
    SELECT d.ord, coalesce(d.doc->>'tenant', 'default') AS tenant, d.doc->>'key' AS key, chosen[d.ord] AS id,
      sha256(convert_to(coalesce(d.doc->>'fingerprint', (d.doc - '{key,key_ttl_s,trace,submitted_by}'::text[])::text), 'UTF8')) AS body,
      moment + make_interval(secs => coalesce((d.doc->>'key_ttl_s')::float8, 604800)) AS expires_at
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
    WHERE d.doc->>'key' IS NOT NULL
  ), taken AS (
    INSERT INTO idempotency_keys AS k (tenant, key, job_id, body, expires_at)
    SELECT DISTINCT ON (tenant, key) tenant, key, id, body, expires_at FROM keyed ORDER BY tenant, key, ord
    ON CONFLICT (tenant, key) DO UPDATE SET
      job_id = CASE WHEN k.expires_at <= moment THEN excluded.job_id ELSE k.job_id END,
      body = CASE WHEN k.expires_at <= moment THEN excluded.body ELSE k.body END,
      completed_at = CASE WHEN k.expires_at <= moment THEN NULL ELSE k.completed_at END,
      execution_id = CASE WHEN k.expires_at <= moment THEN NULL ELSE k.execution_id END,
      expires_at = CASE WHEN k.expires_at <= moment THEN excluded.expires_at ELSE k.expires_at END
    RETURNING tenant, key, job_id, body
  )
  SELECT array_agg(coalesce(taken.job_id, c.id) ORDER BY c.ord), min(keyed.key) FILTER (WHERE taken.body <> keyed.body)
  INTO answered, reused
  FROM unnest(chosen) WITH ORDINALITY AS c(id, ord) LEFT JOIN keyed ON keyed.ord = c.ord
  LEFT JOIN taken ON taken.tenant = keyed.tenant AND taken.key = keyed.key;
  IF reused IS NOT NULL THEN
    RAISE EXCEPTION 'key: the idempotency key "%" was used for a different submission', reused
      USING ERRCODE = 'SX422', HINT = 'Use a new key, or send the first submission again unchanged.';
  END IF;
  RETURN answered;
END
$$;

-- Uniqueness by content. Lock, then decide (rule 4): the first statement takes or locks the row of each key, the second
-- looks whether the job that stands there still counts: it is pending, or the period it was asked for has not passed.
CREATE FUNCTION sexton.claim_unique(jobs jsonb, fresh uuid[], chosen uuid[], moment timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
#variable_conflict use_column
DECLARE
  rival record;
BEGIN
  FOR rival IN
    WITH wanted AS MATERIALIZED (
      SELECT d.ord, coalesce(d.doc->>'tenant', 'default') AS tenant, chosen[d.ord] AS id,
        coalesce((d.doc->'unique'->>'replace')::boolean, false) AS replace,
        moment + make_interval(secs => (d.doc->'unique'->>'holds_s')::float8) AS holds_until,
        sha256(convert_to((SELECT jsonb_object_agg(part, CASE part
            WHEN 'task' THEN d.doc->'task' WHEN 'name' THEN d.doc->'name' WHEN 'payload' THEN coalesce(d.doc->'payload', '{}')
            ELSE d.doc #> string_to_array(part, '.') END)
          FROM jsonb_array_elements_text(d.doc->'unique'->'by') AS part)::text, 'UTF8')) AS key
      FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
      WHERE d.doc ? 'unique' AND chosen[d.ord] = fresh[d.ord]
    ), taken AS (
      INSERT INTO unique_keys AS u (tenant, key, job_id, holds_until)
      SELECT DISTINCT ON (tenant, key) tenant, key, id, holds_until FROM wanted ORDER BY tenant, key, ord
      ON CONFLICT (tenant, key) DO UPDATE SET job_id = u.job_id
      RETURNING tenant, key, job_id, holds_until
    )
    SELECT w.*, t.job_id AS holder, t.holds_until AS held_until,
      min(w.ord) OVER (PARTITION BY w.tenant, w.key) AS first_ord
    FROM wanted w JOIN taken t ON t.tenant = w.tenant AND t.key = w.key ORDER BY w.ord
  LOOP
    IF rival.ord <> rival.first_ord THEN  -- equal to an earlier one of this very call
      chosen[rival.ord] := chosen[rival.first_ord];
      CONTINUE;
    END IF;
    CONTINUE WHEN rival.holder = rival.id;
    IF rival.replace THEN
      PERFORM sexton.finish_runs(jsonb_agg(jsonb_build_object(
        'run_id', p.id, 'token', p.token, 'next', 'end', 'status', 'cancelled', 'ending', 'cancelled',
        'reason', 'replaced by ' || rival.id)), moment)
      FROM (SELECT r.id, r.token FROM runs r WHERE r.job_id = rival.holder AND r.worker_id IS NULL FOR UPDATE) p HAVING count(*) > 0;
    ELSIF rival.held_until > moment
       OR EXISTS (SELECT FROM runs r WHERE r.job_id = rival.holder AND r.state <> 'running') THEN
      chosen[rival.ord] := rival.holder;
      CONTINUE;
    END IF;
    UPDATE unique_keys u SET job_id = rival.id, holds_until = rival.holds_until WHERE u.tenant = rival.tenant AND u.key = rival.key;
  END LOOP;
  RETURN chosen;
END
$$;

-- From any language, inside any transaction:
--   SELECT sexton.submit('send_invoice', '{"user_id": 42}', run_at => now() + interval '1 day');
-- SECURITY DEFINER with a fixed search path: a role with EXECUTE on this function and USAGE on the schema may submit, and
-- can do nothing else.
CREATE FUNCTION sexton.submit(
  task text, payload jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, queue text DEFAULT NULL,
  priority text DEFAULT NULL, tenant text DEFAULT NULL, name text DEFAULT NULL, key text DEFAULT NULL,
  key_ttl interval DEFAULT NULL, timeout interval DEFAULT NULL, tags text[] DEFAULT NULL, unique_by text[] DEFAULT NULL,
  unique_for interval DEFAULT NULL, trace text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = sexton, pg_temp SET lock_timeout = '2s'
SET timezone = 'UTC' AS $$
DECLARE
  lane int := array_position(ARRAY['critical', 'high', 'normal', 'low'], coalesce(priority, 'normal')) - 1;
  part text;
BEGIN
  IF coalesce(task, '') = '' THEN
    RAISE EXCEPTION 'task: name the task to run' USING ERRCODE = '22023', HINT = 'For example sexton.submit(''send_invoice'', …).';
  END IF;
  IF run_at IS NOT NULL AND delay IS NOT NULL THEN
    RAISE EXCEPTION 'run_at and delay: give one of them, not both' USING ERRCODE = '22023';
  END IF;
  IF NOT isfinite(run_at) THEN
    RAISE EXCEPTION 'run_at: % is not an instant', run_at USING ERRCODE = '22023', HINT = 'Leave it out to run now.';
  END IF;
  IF delay < interval '0' THEN
    RAISE EXCEPTION 'delay: % is negative', delay USING ERRCODE = '22023', HINT = 'Leave it out to run now.';
  END IF;
  IF timeout < interval '0' THEN
    RAISE EXCEPTION 'timeout: % is negative', timeout USING ERRCODE = '22023', HINT = 'Zero means no limit.';
  END IF;
  IF lane IS NULL THEN
    RAISE EXCEPTION 'priority: "%" is not a lane', priority USING ERRCODE = '22023', HINT = 'Use critical, high, normal or low.';
  END IF;
  IF octet_length(payload::text) > 393216 THEN  -- 262144 without the spaces that jsonb adds
    RAISE EXCEPTION 'payload: % bytes, the limit is 262144', octet_length(payload::text)
      USING ERRCODE = '22023', HINT = 'Store the data elsewhere and submit a reference to it.';
  END IF;
  IF unique_by = '{}' THEN
    RAISE EXCEPTION 'unique_by: name at least one part of the job'
      USING ERRCODE = '22023', HINT = 'Use task, name, payload or a path such as payload.user_id.';
  END IF;
  FOREACH part IN ARRAY coalesce(unique_by, '{}') LOOP
    IF part NOT IN ('task', 'name', 'payload') AND part NOT LIKE 'payload.%' THEN
      RAISE EXCEPTION 'unique_by: "%" is not a part of a job', part
        USING ERRCODE = '22023', HINT = 'Use task, name, payload or a path such as payload.user_id.';
    END IF;
  END LOOP;
  RETURN (SELECT s.id FROM sexton.submit_jobs(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
      'task', task, 'run_at', run_at, 'delay_s', extract(epoch FROM delay), 'queue', queue,
      'lane', CASE WHEN priority IS NOT NULL THEN lane END, 'tenant', tenant, 'name', name, 'key', key,
      'key_ttl_s', extract(epoch FROM key_ttl), 'timeout_s', extract(epoch FROM timeout), 'tags', to_jsonb(tags), 'trace', trace,
      'submitted_by', session_user,
      'unique', CASE WHEN unique_by IS NOT NULL THEN jsonb_build_object('by', to_jsonb(unique_by), 'holds_s', extract(epoch FROM unique_for)) END
    )) || jsonb_build_object('payload', coalesce(payload, '{}')))) AS s);
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
