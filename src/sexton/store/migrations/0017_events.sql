-- Events out: whoever subscribed is told what became of runs. Each event is delivered by a job of its own, which the transaction that ended
-- the run submits: so none is lost, and none tells of what was rolled back (docs/how-to/webhooks.md, docs/adr/023).

CREATE TABLE sexton.subscriptions (
  name              text PRIMARY KEY,
  kinds             text[] NOT NULL,
  tenant            text,                           -- of whose runs: all that is said here must fit; null: any
  queue             text,
  job_id            uuid,
  delivery          jsonb NOT NULL,                 -- a document of sexton.submit_jobs: the job that delivers, but for the event
  paused_at         timestamptz,                    -- events of that time are not kept
  created_at        timestamptz NOT NULL,
  updated_at        timestamptz NOT NULL,
  -- The narrowest of what is said: by it a run finds its subscribers, however many others there are.
  anchor            text NOT NULL GENERATED ALWAYS AS (CASE
    WHEN job_id IS NOT NULL THEN 'job ' || job_id::text WHEN tenant IS NOT NULL THEN 'tenant ' || tenant
    WHEN queue IS NOT NULL THEN 'queue ' || queue ELSE '' END) STORED,
  CONSTRAINT kinds_are_known CHECK (cardinality(kinds) > 0 AND kinds <@ '{completed,failed,dead_lettered,missed}'::text[])
);
CREATE INDEX subscriptions_active ON sexton.subscriptions (anchor) WHERE paused_at IS NULL;

-- Deliveries that could not be submitted when their run ended, which must never keep a run from ending. The janitor submits them.
CREATE TABLE sexton.held_deliveries (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  held_at           timestamptz NOT NULL,
  said              text NOT NULL,                  -- by the database, why
  delivery          jsonb NOT NULL                  -- as submit_jobs takes it
);

-- When a UUIDv7 was made: the twelve bits after the version are the fraction of the millisecond.
CREATE FUNCTION sexton.instant_of(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT timestamptz 'epoch' + ((bits >> 16) * 1000 + ((bits & 4095) * 1000 + 4095) / 4096) * interval '1 microsecond'
  FROM (SELECT ('x' || substr(replace(id::text, '-', ''), 1, 16))::bit(64)::bigint AS bits) AS first
$$;

-- After every statement that wrote history. Where nobody listens it costs one look at an empty index.
CREATE FUNCTION sexton.raise_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  ids uuid[];
  names text[];
BEGIN
  IF EXISTS (SELECT FROM sexton.subscriptions s WHERE s.paused_at IS NULL) THEN
    SELECT array_agg(e.id), array_agg(s.name) INTO ids, names
    FROM written e CROSS JOIN LATERAL (
      SELECT o.name FROM sexton.subscriptions o
      WHERE o.anchor = ANY (ARRAY['', 'queue ' || e.queue, 'tenant ' || e.tenant, 'job ' || e.job_id::text]) AND o.paused_at IS NULL
        AND (o.tenant IS NULL OR o.tenant = e.tenant) AND (o.queue IS NULL OR o.queue = e.queue)
        AND o.kinds && CASE e.status WHEN 'succeeded' THEN '{completed}'::text[] WHEN 'missed' THEN '{missed,dead_lettered}'
          WHEN 'failed' THEN '{failed,dead_lettered}' WHEN 'timed_out' THEN '{failed,dead_lettered}' WHEN 'lost' THEN '{failed,dead_lettered}'
          WHEN 'released' THEN '{dead_lettered}' WHEN 'snoozed' THEN '{dead_lettered}' ELSE '{}' END
      OFFSET 0) s;  -- by the index, for each
    IF ids IS NOT NULL THEN
      PERFORM sexton.tell_subscribers(ids, names);
    END IF;
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER raise_events AFTER INSERT ON sexton.executions REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION sexton.raise_events();

-- What an event says. Bounded: of an error its type and message, and no result beyond 16 KiB. A gap of a schedule is one event; no run of it
-- ever was.
CREATE FUNCTION sexton.event_data(kind text, e sexton.executions, job_name text) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('job_id', e.job_id, 'name', job_name, 'tenant', e.tenant, 'queue', e.queue, 'handler', e.task,
      'run_id', CASE WHEN (e.status = 'missed' AND e.result ? 'count') IS NOT TRUE THEN e.run_id END, 'execution_id', e.id, 'origin', e.origin,
      'fire_at', e.fire_at, 'attempt', e.attempt, 'status', e.status, 'started_at', e.started_at, 'ended_at', e.ended_at, 'reason', left(e.reason, 500),
      'error', CASE WHEN e.error IS NOT NULL THEN jsonb_build_object('type', left(e.error->>'type', 200), 'message', left(e.error->>'message', 2000)) END)
    || CASE
      WHEN kind = 'failed' THEN jsonb_build_object('will_retry', EXISTS (SELECT FROM sexton.runs r WHERE r.id = e.run_id))
      WHEN kind = 'missed' THEN jsonb_build_object('first_at', coalesce((e.result->>'first')::timestamptz, e.fire_at),
        'last_at', coalesce((e.result->>'last')::timestamptz, e.fire_at), 'count', coalesce(e.result->'count', '1'))
      WHEN kind <> 'completed' THEN '{}'
      WHEN octet_length(e.result::text) > 16384 THEN '{"result_omitted": true}'
      ELSE jsonb_build_object('result', e.result) END
$$;

-- Submits the jobs that deliver what these executions mean to these subscribers (in pairs), as of when they ended. A delivery raises no
-- events itself, or one that fails would tell of itself for ever. Parts of a thousand: a document has an end.
CREATE FUNCTION sexton.tell_subscribers(ids uuid[], names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET timezone = 'UTC' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  size constant int := 1000;
  lowest uuid := (SELECT min(i::text COLLATE "C")::uuid FROM unnest(ids) AS i);
  highest uuid := (SELECT max(i::text COLLATE "C")::uuid FROM unnest(ids) AS i);
  deliveries jsonb;
BEGIN
  FOR n IN 1 .. cardinality(ids) BY size LOOP
    deliveries := NULL;
    BEGIN
      SELECT jsonb_agg(
        jsonb_set(s.delivery, '{policy,delivers}', jsonb_build_object('subscription', s.name, 'kind', k.kind, 'execution_id', e.id))
        || jsonb_build_object('name', 'webhook:' || s.name, 'tenant', e.tenant, 'trace', j.trace, 'payload', jsonb_build_object(
          'type', 'run.' || k.kind, 'timestamp', e.ended_at, 'data', sexton.event_data(k.kind, t.execution, j.name))))
      INTO deliveries
      FROM unnest(ids[n : n + size - 1], names[n : n + size - 1]) AS w(id, name)
      CROSS JOIN LATERAL (SELECT x AS execution FROM executions x WHERE x.id = w.id AND x.id BETWEEN lowest AND highest LIMIT 1) t
      CROSS JOIN LATERAL (SELECT (t.execution).id, (t.execution).job_id, (t.execution).status, (t.execution).tenant, (t.execution).ended_at) e
      CROSS JOIN LATERAL (SELECT o.name, o.kinds, o.delivery FROM subscriptions o WHERE o.name = w.name LIMIT 1) s
      LEFT JOIN LATERAL (SELECT jobs.name, jobs.trace, jobs.policy ? 'delivers' AS delivers FROM jobs WHERE jobs.id = e.job_id LIMIT 1) j ON true
      LEFT JOIN LATERAL (SELECT true AS is_dead FROM dead_letters d WHERE e.status <> 'succeeded' AND d.id = e.id LIMIT 1) d ON true
      CROSS JOIN LATERAL (VALUES
        (CASE e.status WHEN 'succeeded' THEN 'completed' WHEN 'missed' THEN 'missed' WHEN 'failed' THEN 'failed' WHEN 'timed_out' THEN 'failed'
          WHEN 'lost' THEN 'failed' END),
        (CASE WHEN d.is_dead THEN 'dead_lettered' END)) AS k(kind)
      WHERE j.delivers IS NOT TRUE AND k.kind = ANY (s.kinds);
      IF deliveries IS NOT NULL THEN
        PERFORM sexton.submit_jobs(deliveries, true, sexton.instant_of(lowest));
      END IF;
    EXCEPTION WHEN OTHERS THEN
      INSERT INTO held_deliveries (held_at, said, delivery)
      SELECT sexton.instant_of(lowest), left(SQLERRM, 500), d FROM jsonb_array_elements(deliveries) AS d;
      RAISE WARNING 'events of runs that ended could not be handed on (%): %', SQLSTATE, SQLERRM
        USING HINT = 'They are in sexton.held_deliveries, and are submitted within a minute or two.';
    END;
  END LOOP;
END
$$;

-- Hands on what was held. One that is refused again waits behind the others.
CREATE FUNCTION sexton.submit_held(at_most int, at timestamptz DEFAULT NULL, OUT submitted int, OUT refused int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  held record;
BEGIN
  submitted := 0;
  refused := 0;
  FOR held IN SELECT h.id, h.delivery FROM held_deliveries h ORDER BY h.held_at, h.id LIMIT at_most FOR UPDATE SKIP LOCKED LOOP
    BEGIN
      PERFORM sexton.submit_jobs(jsonb_build_array(held.delivery), true, moment);
      DELETE FROM held_deliveries h WHERE h.id = held.id;
      submitted := submitted + 1;
    EXCEPTION WHEN OTHERS THEN
      UPDATE held_deliveries h SET held_at = moment, said = left(SQLERRM, 500) WHERE h.id = held.id;
      refused := refused + 1;
    END;
  END LOOP;
END
$$;

-- As before, but for deliveries: they are none of their tenant's doing, so no limit of what it may submit or have waiting holds for them.
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
  seed bigint := sexton.dice();  -- for all ids of this call
  fresh uuid[];    -- the id each document gets if it is new
  chosen uuid[];   -- the id it is answered with
  ready_queues text[];
  due_soon boolean;
  counted_tenants text[];
  named_limits jsonb;
BEGIN
  PERFORM sexton.ensure_partitions(moment);
  -- One microsecond apart, so that jobs of one call keep their order.
  fresh := ARRAY(SELECT sexton.uuid7(g.micros, hashint8extended(g.micros, seed))
                 FROM generate_series(micros, micros + jsonb_array_length(jobs) - 1) WITH ORDINALITY AS g(micros, ord) ORDER BY g.ord);
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
      FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
      WHERE chosen[d.ord] = fresh[d.ord] AND (d.doc->'policy' ? 'delivers') IS NOT TRUE GROUP BY 1) d;
  END IF;

  WITH given AS NOT MATERIALIZED (
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
    FROM filled
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
    FROM filled
  )
  SELECT array_agg(q.queue) FILTER (WHERE q.has_ready), coalesce(bool_or(q.has_soon), false),
    (SELECT jsonb_agg(DISTINCT jsonb_build_object('key', limit_key, 'limit', policy->'limit')) FROM filled WHERE limit_key IS NOT NULL)
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

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
