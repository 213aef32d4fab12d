-- The one way in for one-time jobs (rule "one path in, one path out"): sexton.submit, the SDK and the API all call it.
-- `jobs` is an array of documents: task, payload, queue, lane, tenant, name, run_at or delay_s, timeout_s, at_most_once, policy, tags,
-- submitted_by, trace; key with key_ttl_s and fingerprint; unique {by, holds_s, replace}; limit {key, running, count, per_s, burst,
-- ordered}. What a document leaves out comes from the registered options of the task, then of its queue, then from the product's
-- defaults. Jobs that differ only in their payload may come as one object instead, {job, payloads}: the document of all of them, without
-- key, unique and tags, and the payload of each. Nothing else differs: 11 µs per job instead of 13 (docs/adr/007).
-- Promises: answers in the order given; `created` is false where an idempotency key or an equal unique job already existed. A job that is
-- due now is ready at once. Deliveries of events are not work that their tenant asked for, so its limits do not count for them. One look
-- at the random device per call.
-- Called by: submit, submit_and_show, submit_each, submit_held, tell_subscribers, store/work/jobs.sql. Locks: those of check_submissions,
-- claim_keys, claim_unique and make_limits; lock_timeout 2 s, or what the session sets as sexton.submit_lock_timeout: a session that many
-- callers share waits less (rule "a waiting caller leaves the group"). sexton.submit_wait: what is left of a caller's time.
CREATE OR REPLACE FUNCTION sexton.submit_jobs(jobs jsonb, notify boolean DEFAULT true, at timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
  payloads constant jsonb := jobs->'payloads';  -- null if each job has a document
  documents constant jsonb := CASE WHEN payloads IS NULL THEN jobs ELSE jsonb_build_array(jobs->'job') END;
  job_count constant int := jsonb_array_length(coalesce(payloads, jobs));
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  seed bigint := sexton.dice();  -- for all ids of this call
  fresh uuid[];    -- the id each document gets if it is new
  chosen uuid[];   -- the id in the answer
  ready_queues text[];
  due_soon boolean;
  counted_tenants text[];
  named_limits jsonb;
  wait text;
BEGIN
  wait := coalesce(nullif(current_setting('sexton.submit_lock_timeout', true), ''), nullif(current_setting('sexton.submit_wait', true), ''));
  IF wait IS NOT NULL THEN  -- until the end of this function, because it has a SET clause
    PERFORM set_config('lock_timeout', wait, true);
  END IF;
  IF payloads IS NOT NULL AND jobs->'job' ?| '{key,unique,tags}' THEN
    RAISE EXCEPTION 'payloads: jobs with a key, unique or tags need a document each' USING ERRCODE = '22023';
  END IF;
  PERFORM sexton.ensure_partitions(moment);
  -- One microsecond apart, so that jobs of one call keep their order.
  fresh := ARRAY(SELECT sexton.uuid7(g.micros, hashint8extended(g.micros, seed))
                 FROM generate_series(micros, micros + job_count - 1) WITH ORDINALITY AS g(micros, ord) ORDER BY g.ord);
  chosen := fresh;
  IF jobs @? '$[*].key' THEN
    chosen := sexton.claim_keys(jobs, chosen, moment);
  END IF;
  IF jobs @? '$[*].unique' THEN
    chosen := sexton.claim_unique(jobs, fresh, chosen, moment);
    -- A job that was replaced by an equal one was never created: its key, and later callers with that key, get the equal one.
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
      SELECT coalesce(d.doc->>'tenant', 'default') AS tenant, CASE WHEN payloads IS NULL THEN count(*)::int ELSE job_count END AS count
      FROM jsonb_array_elements(documents) WITH ORDINALITY AS d(doc, ord)
      WHERE chosen[d.ord] = fresh[d.ord] AND (d.doc->'policy' ? 'delivers') IS NOT TRUE GROUP BY 1) d;
  END IF;

  WITH given AS NOT MATERIALIZED (
    SELECT s.* FROM ROWS FROM (jsonb_to_recordset(documents) AS (
      task text, payload jsonb, queue text, lane smallint, tenant text, name text, run_at timestamptz, delay_s float8, timeout_s real,
      at_most_once boolean, policy jsonb, tags text[], submitted_by text, trace text, key text, "limit" jsonb)
    ) WITH ORDINALITY AS s (
      task, payload, queue, lane, tenant, name, run_at, delay_s, timeout_s, at_most_once, policy, tags, submitted_by, trace, key, "limit", ord)
    WHERE chosen[s.ord] = fresh[s.ord]
  ), filled AS MATERIALIZED (
    SELECT g.ord, g.task, coalesce(g.payload, documents->(g.ord::int - 1)->'payload', '{}') AS payload, g.name, g.tags, g.submitted_by, g.trace, g.key,
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
    LEFT JOIN queues q ON q.name = coalesce(g.queue, t.options->>'queue', 'default') OFFSET 0
  ), made AS MATERIALIZED (
    SELECT fresh[m.ord] AS id, m.*, sexton.limit_key_of(m.policy, m.payload) AS limit_key FROM (
      SELECT f.* FROM filled f WHERE payloads IS NULL
      UNION ALL
      SELECT p.ord, f.task, p.payload, f.name, f.tags, f.submitted_by, f.trace, f.key, f.tenant, f.queue, f.lane, f.timeout_s, f.at_most_once,
        f.policy, f.due_at, f.fire_at
      FROM filled f CROSS JOIN jsonb_array_elements(payloads) WITH ORDINALITY AS p(payload, ord)
      WHERE payloads IS NOT NULL
    ) m
  ), defined AS (
    INSERT INTO jobs (id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, idempotency_key, tags,
                      submitted_at, submitted_by, trace)
    SELECT id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, key, tags,
      moment, coalesce(submitted_by, session_user), trace
    FROM made
  ), placed AS (
    INSERT INTO runs (id, job_id, fire_at, due_at, start_by, deadline_at, timeout_s, lease_s, lane, partition, at_most_once, state,
                      origin, queue, tenant, task, limit_key, counted)
    -- A one-time job has one run, with the same id as the job.
    SELECT id, id, fire_at, due_at,
      due_at + make_interval(secs => (policy->>'start_within_s')::float8),
      due_at + make_interval(secs => (policy->>'deadline_s')::float8),
      timeout_s, (policy->>'lease_s')::real, lane, sexton.partition_of(id), at_most_once,
      CASE WHEN due_at <= moment THEN 'ready' ELSE 'waiting' END, 'now', queue, tenant, task,
      limit_key, counted_tenants IS NOT NULL AND tenant = ANY (counted_tenants)
    FROM made
  )
  SELECT array_agg(q.queue) FILTER (WHERE q.has_ready), coalesce(bool_or(q.has_soon), false),
    (SELECT jsonb_agg(n.named ORDER BY n.first_id) FROM (
       SELECT jsonb_build_object('key', limit_key, 'limit', policy->'limit') AS named, min(id::text COLLATE "C") AS first_id
       FROM made WHERE limit_key IS NOT NULL GROUP BY 1) n)
  INTO ready_queues, due_soon, named_limits
  FROM (SELECT queue, bool_or(due_at <= moment) AS has_ready,
          bool_or(due_at > moment AND due_at < moment + interval '3 seconds') AS has_soon
        FROM filled GROUP BY queue) q;
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
