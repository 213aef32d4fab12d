-- Recurring jobs: a rule, how far it is planned, and what may run beside what (docs/adr/013).

ALTER TABLE sexton.jobs
  ADD COLUMN schedule jsonb,                       -- recurring only: the rule, as `domain.schedule` reads it
  ADD COLUMN recurrence jsonb,                     -- overlap, catch-up, on_resume, …: only what differs from the default
  ADD COLUMN plan_at timestamptz,                  -- when a planner has to look again; null: paused, or the schedule is over
  ADD COLUMN fire_count bigint NOT NULL DEFAULT 0, -- fires of this rule so far, for max_fires
  ADD COLUMN over_at timestamptz,                  -- no more fires will be planned
  ADD COLUMN over_as text,                         -- completed, cancelled, failed
  ADD COLUMN over_reason text,
  ADD COLUMN resume_at timestamptz;                -- a pause that ends by itself
ALTER TABLE sexton.job_versions ADD COLUMN schedule jsonb, ADD COLUMN recurrence jsonb;

ALTER TABLE sexton.jobs_recurring
  ADD CONSTRAINT a_recurring_job_has_a_schedule CHECK (schedule IS NOT NULL),
  ADD CONSTRAINT over_is_said CHECK ((over_at IS NULL) = (over_as IS NULL)),
  ADD CONSTRAINT nothing_is_planned_when_over CHECK (over_at IS NULL OR plan_at IS NULL);

CREATE INDEX jobs_to_plan ON sexton.jobs_recurring (plan_at, id) WHERE plan_at IS NOT NULL;
CREATE INDEX jobs_to_resume ON sexton.jobs_recurring (resume_at) WHERE resume_at IS NOT NULL;
-- For the guardian: alive by all signs, and yet nobody will plan it.
CREATE INDEX jobs_forgotten ON sexton.jobs_recurring (id) WHERE plan_at IS NULL AND over_at IS NULL AND paused_at IS NULL;
CREATE UNIQUE INDEX schedule_names ON sexton.jobs_recurring (tenant, name) WHERE name IS NOT NULL AND over_at IS NULL;

-- 0: its siblings do not matter; 1: one live run of the job at a time; 2: at most so many.
ALTER TABLE sexton.runs ADD COLUMN overlap smallint NOT NULL DEFAULT 0;
CREATE INDEX runs_due_beside ON sexton.runs (due_at, partition, id) WHERE state = 'waiting' AND overlap > 0 AND token = 0;
CREATE INDEX runs_blocked ON sexton.runs (job_id, due_at) WHERE state = 'blocked';
-- The last guard of rule 4. Live is from promotion to the end, retry waits and snoozes included.
CREATE UNIQUE INDEX one_live_run ON sexton.runs (job_id) WHERE overlap = 1 AND (state IN ('ready', 'running') OR token > 0);

-- Ids of recurring jobs have the first bit set (docs/adr/008).
CREATE FUNCTION sexton.recurring_id(micros bigint) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_byte(id, 0, get_byte(id, 0) | 128), 'hex')::uuid FROM uuid_send(sexton.uuid7(micros)) AS id
$$;

-- Takes back the runs of jobs that nobody has begun, and says from where to plan again (rule 2): not before the last begun,
-- which jitter may have let start ahead of its nominal time, and not after the first that was taken back. Call it with the rows
-- of the jobs locked. Two statements: a claim that the first had to wait for is seen by the second.
CREATE FUNCTION sexton.unplan(job_ids uuid[], moment timestamptz)
RETURNS TABLE (job_id uuid, cursor_at timestamptz, removed_count int, begun_count int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  taken_back jsonb;
BEGIN
  WITH removed AS (
    DELETE FROM runs r
    WHERE r.job_id = ANY (job_ids) AND r.origin = 'schedule' AND r.token = 0 AND r.state IN ('waiting', 'ready', 'blocked')
    RETURNING r.job_id, r.fire_at
  )
  SELECT coalesce(jsonb_agg(t), '[]') INTO taken_back
  FROM (SELECT removed.job_id, min(removed.fire_at) AS first_at, count(*) AS removed_count FROM removed GROUP BY removed.job_id) t;

  RETURN QUERY
  SELECT j.id,
    greatest(
      least(t.first_at - interval '1 microsecond', j.plan_cursor_at, moment),
      (SELECT max(r.fire_at) FROM runs r WHERE r.job_id = j.id AND r.origin = 'schedule'),
      -- No jitter reaches further than half an hour.
      (SELECT max(e.fire_at) FROM executions e
       WHERE e.job_id = j.id AND e.id >= sexton.uuid7_floor(moment - interval '1 hour') AND e.origin = 'schedule')),
    coalesce(t.removed_count, 0), (SELECT count(*)::int FROM runs r WHERE r.job_id = j.id AND r.token > 0)
  FROM jobs_recurring j
  LEFT JOIN jsonb_to_recordset(taken_back) AS t (job_id uuid, first_at timestamptz, removed_count int) ON t.job_id = j.id
  WHERE j.id = ANY (job_ids);
END
$$;

-- A schedule as it is submitted, with what it leaves out filled in from its task's options and the product's defaults.
CREATE TYPE sexton.schedule_document AS (
  ord int, task text, name text, tenant text, queue text, lane smallint, payload jsonb, policy jsonb, timeout_s real, at_most_once boolean,
  tags text[], submitted_by text, trace text, schedule jsonb, recurrence jsonb, on_name text);

CREATE FUNCTION sexton.read_schedules(schedules jsonb) RETURNS SETOF sexton.schedule_document
LANGUAGE sql STABLE SET search_path = sexton, pg_temp AS $$
  SELECT d.ord::int, g.task, g.name, coalesce(g.tenant, 'default'),
    coalesce(g.queue, t.options->>'queue', 'default'),
    coalesce(g.lane, (t.options->>'lane')::smallint, 2::smallint),
    coalesce(d.doc->'payload', '{}'),
    nullif(coalesce(t.options->'policy', '{}') || coalesce(g.policy, '{}'), '{}'),
    nullif(coalesce(g.timeout_s, (t.options->>'timeout_s')::real, 30), 0),
    coalesce(g.at_most_once, (t.options->>'at_most_once')::boolean, false),
    g.tags, coalesce(g.submitted_by, session_user), g.trace, g.schedule, g.recurrence, coalesce(g.on_name, 'update')
  FROM jsonb_array_elements(schedules) WITH ORDINALITY AS d(doc, ord)
  CROSS JOIN LATERAL jsonb_populate_record(NULL::sexton.schedule_document, d.doc) AS g
  LEFT JOIN tasks t ON t.name = g.task
$$;

-- The next version of a recurring job: the old one is kept, what nobody has begun is taken back and planned anew. Call it with
-- the row of the job locked.
CREATE FUNCTION sexton.revise(revised uuid, new sexton.schedule_document, moment timestamptz, OUT removed_count int, OUT begun_count int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  cursor_at timestamptz;
BEGIN
  SELECT u.cursor_at, u.removed_count, u.begun_count INTO cursor_at, removed_count, begun_count FROM sexton.unplan(ARRAY[revised], moment) u;
  INSERT INTO job_versions (job_id, version, queue, lane, name, payload, policy, timeout_s, tags, fire_at, replaced_at, replaced_by, schedule, recurrence)
  SELECT j.id, j.version, j.queue, j.lane, j.name, j.payload, j.policy, j.timeout_s, j.tags, cursor_at, moment, new.submitted_by, j.schedule, j.recurrence
  FROM jobs_recurring j WHERE j.id = revised;
  UPDATE jobs_recurring j SET version = j.version + 1, task = new.task, name = new.name, queue = new.queue, lane = new.lane,
    payload = new.payload, policy = new.policy, timeout_s = new.timeout_s, at_most_once = new.at_most_once, tags = new.tags,
    recurrence = new.recurrence, schedule = new.schedule,
    fire_count = CASE WHEN j.schedule = new.schedule THEN greatest(j.fire_count - removed_count, 0) ELSE 0 END,
    plan_cursor_at = cursor_at, plan_at = CASE WHEN j.paused_at IS NULL THEN moment END
  WHERE j.id = revised;
  DELETE FROM job_tags t WHERE t.job_id = revised AND t.tag <> ALL (coalesce(new.tags, '{}'));
  INSERT INTO job_tags (tag, job_id) SELECT DISTINCT tag, revised FROM unnest(new.tags) AS tag ON CONFLICT DO NOTHING;
END
$$;

-- Writes schedules: new ones, and under a name that stands a new version of the old one; what is equal stays as it is. They are
-- to be planned at once: who submits in Python does so in the same transaction, for others a planner wakes up.
-- Fields of a document: those of the type above. `on_name` is update (default) or refuse. Answers in the order given.
CREATE FUNCTION sexton.submit_schedules(schedules jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean, changed boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  fresh uuid[];     -- the id each document gets if it is new
  answers uuid[];   -- the id it is answered with
  changes boolean[];
  older record;
BEGIN
  SELECT array_agg(sexton.recurring_id(g.micros) ORDER BY g.micros) INTO fresh
  FROM generate_series(micros, micros + jsonb_array_length(schedules) - 1) AS g(micros);
  answers := fresh;
  changes := array_fill(true, ARRAY[coalesce(array_length(fresh, 1), 0)]);

  -- A rival's insert of the same name is waited for here, and found below.
  WITH written AS (
    INSERT INTO jobs_recurring (id, task, tenant, queue, lane, name, payload, policy, timeout_s, at_most_once, tags, submitted_at, submitted_by,
                                trace, schedule, recurrence, plan_at)
    SELECT fresh[g.ord], g.task, g.tenant, g.queue, g.lane, g.name, g.payload, g.policy, g.timeout_s, g.at_most_once, g.tags, moment,
      g.submitted_by, g.trace, g.schedule, g.recurrence, moment
    FROM sexton.read_schedules(schedules) g ORDER BY g.tenant, g.name, g.ord
    ON CONFLICT (tenant, name) WHERE name IS NOT NULL AND over_at IS NULL DO NOTHING
    RETURNING id, tags
  )
  INSERT INTO job_tags (tag, job_id) SELECT DISTINCT tag, w.id FROM written w CROSS JOIN LATERAL unnest(w.tags) AS tag;

  FOR older IN
    SELECT g AS new, g.ord, g.name, g.on_name, j.id,
      (j.task, j.queue, j.lane, j.payload, j.at_most_once, j.schedule) = (g.task, g.queue, g.lane, g.payload, g.at_most_once, g.schedule)
      AND j.timeout_s IS NOT DISTINCT FROM g.timeout_s AND j.policy IS NOT DISTINCT FROM g.policy AND j.tags IS NOT DISTINCT FROM g.tags
      AND j.recurrence IS NOT DISTINCT FROM g.recurrence AS same
    FROM sexton.read_schedules(schedules) g JOIN jobs_recurring j ON j.tenant = g.tenant AND j.name = g.name AND j.over_at IS NULL
    WHERE j.id <> fresh[g.ord]
    ORDER BY j.id, g.ord FOR UPDATE OF j
  LOOP
    IF older.on_name = 'refuse' THEN
      RAISE EXCEPTION 'name: there is a schedule named "%" already', older.name
        USING ERRCODE = 'SX409', HINT = 'Give another name, or let it be updated.';
    END IF;
    answers[older.ord] := older.id;
    changes[older.ord] := NOT older.same;
    IF NOT older.same THEN
      PERFORM sexton.revise(older.id, older.new, moment);
    END IF;
  END LOOP;

  IF current_setting('sexton.notify', true) IS DISTINCT FROM 'off' AND true = ANY (changes) THEN
    PERFORM pg_notify('sexton_plan', '');
  END IF;
  RETURN QUERY SELECT answers[n], answers[n] = fresh[n], changes[n] FROM generate_subscripts(fresh, 1) AS n ORDER BY n;
END
$$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;

-- The fast path of rule 5: what a run was in the way of need not wait for the promoter's next look.
CREATE FUNCTION sexton.release_blocked() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM runs r WHERE r.job_id = OLD.job_id AND r.state = 'blocked') THEN
    PERFORM sexton.announce('{}', true);
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER release_blocked AFTER DELETE ON sexton.runs FOR EACH ROW WHEN (OLD.overlap > 0) EXECUTE FUNCTION sexton.release_blocked();
