-- What the API asks: jobs found by any of their properties, changed before they start, paused and resumed.

-- Paused: by a person, outside claim and promotion. Its latest start and its deadline still count.
ALTER TABLE sexton.runs DROP CONSTRAINT state_is_known;
ALTER TABLE sexton.runs ADD CONSTRAINT state_is_known CHECK (state IN ('waiting', 'ready', 'running', 'paused', 'blocked', 'parked'));
ALTER TABLE sexton.jobs
  ADD COLUMN paused_at timestamptz,
  ADD COLUMN paused_by text,
  ADD COLUMN note text;

-- By the bytes of the id, which sort as it does: an order that no other index of `runs` has, so that no plan made on an empty
-- table can prefer the walk through all of them.
CREATE INDEX runs_paused ON sexton.runs (uuid_send(job_id)) WHERE state = 'paused';

-- One index per filter of a list, each in the order of the list (docs/adr/011).
CREATE INDEX jobs_by_tenant ON sexton.jobs (tenant, id);
CREATE INDEX jobs_by_queue ON sexton.jobs (queue, id);
CREATE INDEX jobs_by_task ON sexton.jobs (task, id);
CREATE INDEX jobs_by_name ON sexton.jobs (name, id) WHERE name IS NOT NULL;
CREATE INDEX endings_not_completed ON sexton.endings (status, job_id) WHERE status <> 'completed';

-- A B-tree instead of a GIN on the array: a job without tags costs nothing, and a page comes in order.
CREATE TABLE sexton.job_tags (
  tag               text NOT NULL,
  job_id            uuid NOT NULL,
  CONSTRAINT job_tags_pkey PRIMARY KEY (tag, job_id)
) PARTITION BY RANGE (job_id);
CREATE TABLE sexton.job_tags_recurring PARTITION OF sexton.job_tags
  FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

-- What a job was before each edit. Runs, executions and dead letters name the version they belong to.
CREATE TABLE sexton.job_versions (
  job_id            uuid NOT NULL,
  version           int NOT NULL,
  queue             text NOT NULL,
  lane              smallint NOT NULL,
  name              text,
  payload           jsonb NOT NULL,
  policy            jsonb,
  timeout_s         real,
  tags              text[],
  fire_at           timestamptz NOT NULL,
  replaced_at       timestamptz NOT NULL,
  replaced_by       text,
  CONSTRAINT job_versions_pkey PRIMARY KEY (job_id, version)
) PARTITION BY RANGE (job_id);
CREATE TABLE sexton.job_versions_recurring PARTITION OF sexton.job_versions
  FOR VALUES FROM ('80000000-0000-0000-0000-000000000000') TO (MAXVALUE);

-- Jobs with their tags, versions and endings by ISO week, executions by day, in UTC whatever the session's time zone.
CREATE OR REPLACE FUNCTION sexton.make_partitions(first timestamptz, last timestamptz) RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET timezone = 'UTC' AS $$
DECLARE
  made int := 0;
  step timestamptz;
BEGIN
  FOR step IN SELECT generate_series(date_trunc('week', first), last, interval '7 days') LOOP
    -- The endings last: `ensure_partitions` looks for theirs alone.
    made := made + make_partition('jobs', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('job_tags', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('job_versions', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('endings', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int;
  END LOOP;
  FOR step IN SELECT generate_series(date_trunc('day', first), last, interval '1 day') LOOP
    made := made + make_partition('executions', to_char(step, 'YYYYMMDD'), step, step + interval '1 day')::int;
  END LOOP;
  RETURN made;
END
$$;

-- Takes a partition out and drops it; tags and versions go with their jobs. Waits briefly for the lock; the janitor simply comes back.
CREATE OR REPLACE FUNCTION sexton.drop_partition(parent text, child text) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
  EXECUTE format('ALTER TABLE sexton.%I DETACH PARTITION sexton.%I', parent, child);
  EXECUTE format('DROP TABLE sexton.%I', child);
  IF parent = 'jobs' THEN
    PERFORM drop_partition('job_tags', replace(child, 'jobs_', 'job_tags_'));
    PERFORM drop_partition('job_versions', replace(child, 'jobs_', 'job_versions_'));
  END IF;
END
$$;

-- For the weeks that are there already.
DO $$
DECLARE
  week record;
BEGIN
  FOR week IN
    SELECT substring(child.relname FROM 6) AS suffix, pg_get_expr(child.relpartbound, child.oid) AS bounds
    FROM pg_inherits i JOIN pg_class child ON child.oid = i.inhrelid
    WHERE i.inhparent = 'sexton.jobs'::regclass AND child.relname <> 'jobs_recurring'
  LOOP
    EXECUTE format('CREATE TABLE sexton.%I PARTITION OF sexton.job_tags %s', 'job_tags_' || week.suffix, week.bounds);
    EXECUTE format('CREATE TABLE sexton.%I PARTITION OF sexton.job_versions %s', 'job_versions_' || week.suffix, week.bounds);
  END LOOP;
END
$$;
INSERT INTO sexton.job_tags (tag, job_id)
SELECT DISTINCT tag, j.id FROM sexton.jobs j CROSS JOIN LATERAL unnest(j.tags) AS tag;

-- `jobs` is an array of documents: task, payload, queue, lane, tenant, name, run_at or delay_s, timeout_s, at_most_once, policy,
-- tags, submitted_by, trace; key with key_ttl_s and fingerprint; unique {by, holds_s, replace}. What a document leaves out comes
-- from the task's registered options, then from the product's defaults. Answers in the order given; `created` is false where
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
