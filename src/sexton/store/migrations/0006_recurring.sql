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

-- How late a planned fire may be promoted before its catch-up policy is asked. Longer than any crowd takes that somebody works off.
CREATE FUNCTION sexton.patience() RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '1 minute' $$;

-- Takes back the runs of jobs that nobody has begun, and says from where to plan again (rule 2): not before the last that was begun or
-- decided about, which jitter may have let start ahead of its nominal time, and not after the first that was taken back. One that is
-- taken back and lies before (it waited its turn while later ones were skipped) is not planned again: the ledger tells of it.
-- Call it with the rows of the jobs locked. Several statements: a claim that the first had to wait for is seen by the next.
CREATE FUNCTION sexton.unplan(job_ids uuid[], moment timestamptz, states text[] DEFAULT '{waiting,ready,blocked}', told text DEFAULT 'skipped')
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

-- A fire that nobody promoted for a minute was missed like one that nobody planned: it is taken back, and catch-up decides about both.
-- At most so many runs are looked at; how many jobs are planned anew.
CREATE FUNCTION sexton.recall(partitions smallint[], at_most int, at timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  late uuid[];
  recalled int;
BEGIN
  SELECT array_agg(DISTINCT r.job_id) INTO late FROM (
    SELECT due.job_id FROM runs due
    WHERE due.state = 'waiting' AND due.overlap > 0 AND due.token = 0 AND due.origin = 'schedule' AND due.partition = ANY (partitions)
      AND due.due_at <= moment - sexton.patience()
    ORDER BY due.due_at LIMIT at_most) r;
  IF late IS NULL THEN
    RETURN 0;
  END IF;
  SELECT array_agg(j.id) INTO late FROM (
    SELECT k.id FROM jobs_recurring k
    WHERE k.id = ANY (late) AND k.over_at IS NULL AND k.paused_at IS NULL ORDER BY k.id FOR UPDATE SKIP LOCKED) j;
  UPDATE jobs_recurring j SET plan_cursor_at = u.cursor_at, plan_at = moment, fire_count = greatest(j.fire_count - u.removed_count, 0)
  FROM sexton.unplan(late, moment, '{waiting}', 'missed') u WHERE j.id = u.job_id AND u.removed_count > 0;
  GET DIAGNOSTICS recalled = ROW_COUNT;
  RETURN recalled;
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

-- How the runs of a job are kept apart: `runs.overlap`.
CREATE FUNCTION sexton.overlap_of(recurrence jsonb) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN recurrence->'overlap'->>'policy' = 'parallel' THEN 2 ELSE 1 END::smallint
$$;

-- Whether a rule says what is known already: what it counts from is filled in by its first planning, unless it was given.
CREATE FUNCTION sexton.same_rule(known jsonb, given jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT known = CASE WHEN given ? 'anchor_at' THEN given ELSE given || jsonb_strip_nulls(jsonb_build_object('anchor_at', known->'anchor_at')) END
$$;

CREATE FUNCTION sexton.same_schedule(known sexton.jobs_recurring, given sexton.schedule_document) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = sexton, pg_temp AS $$
  SELECT (known.task, known.queue, known.lane, known.payload, known.at_most_once) = (given.task, given.queue, given.lane, given.payload, given.at_most_once)
    AND sexton.same_rule(known.schedule, given.schedule)
    AND known.timeout_s IS NOT DISTINCT FROM given.timeout_s AND known.policy IS NOT DISTINCT FROM given.policy
    AND known.tags IS NOT DISTINCT FROM given.tags AND known.recurrence IS NOT DISTINCT FROM given.recurrence
$$;

-- The next version of a recurring job; the old one is kept. If its rule stays, what was planned moves over to the new version, so that
-- no fire is lost to an edit; else it is taken back and planned anew. A claim that came first wins. Call it with the row of the job locked.
CREATE FUNCTION sexton.revise(revised uuid, new sexton.schedule_document, moment timestamptz, OUT removed_count int, OUT begun_count int)
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
  UPDATE runs r SET job_version = old.version + 1, task = new.task, queue = new.queue, lane = new.lane, at_most_once = new.at_most_once,
    timeout_s = new.timeout_s, lease_s = (new.policy->>'lease_s')::real,
    start_by = r.due_at + make_interval(secs => (new.policy->>'start_within_s')::float8),
    deadline_at = r.due_at + make_interval(secs => (new.policy->>'deadline_s')::float8),
    -- What was let in stays in: several at once may have been legal until now.
    overlap = CASE WHEN r.state <> 'waiting' THEN r.overlap ELSE sexton.overlap_of(new.recurrence) END
  WHERE r.job_id = revised AND r.token = 0 AND r.state IN ('waiting', 'ready', 'blocked') AND r.origin <> 'replay';  -- that is of the version it replays
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
  known uuid[];     -- who has its name already
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

  -- Lock, then look: each name is found by its index, and the rows are locked in the order of their ids.
  SELECT array_agg(k.id ORDER BY g.ord) INTO known
  FROM sexton.read_schedules(schedules) g LEFT JOIN LATERAL (
    SELECT nullif(j.id, fresh[g.ord]) AS id FROM jobs_recurring j WHERE j.tenant = g.tenant AND j.name = g.name AND j.over_at IS NULL LIMIT 1
  ) k ON true;
  PERFORM FROM jobs_recurring j WHERE j.id = ANY (array_remove(known, NULL)) ORDER BY j.id FOR UPDATE;
  FOR older IN
    SELECT g AS new, g.ord, g.name, g.on_name, (k.job).id, (k.job).over_at, sexton.same_schedule(k.job, g) AS same
    FROM sexton.read_schedules(schedules) g CROSS JOIN LATERAL (SELECT j AS job FROM jobs_recurring j WHERE j.id = known[g.ord] LIMIT 1) k
    WHERE known[g.ord] IS NOT NULL
  LOOP
    IF older.over_at IS NOT NULL THEN
      RAISE EXCEPTION 'the schedule named "%" ended at this moment', older.name USING ERRCODE = '40001', HINT = 'Try again.';
    END IF;
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

-- A recurring job from any language, inside any transaction:
--   SELECT sexton.submit_schedule('report', name => 'report', cron => '0 9 * * MON-FRI', timezone => 'America/New_York');
-- What is wrong with the rule itself, a planner finds: the job then ends as failed and says why. Rights as for `sexton.submit`.
CREATE FUNCTION sexton.submit_schedule(
  task text, payload jsonb DEFAULT '{}', name text DEFAULT NULL, cron text DEFAULT NULL, rrule text DEFAULT NULL, every interval DEFAULT NULL,
  timezone text DEFAULT NULL, jitter interval DEFAULT NULL, start_at timestamptz DEFAULT NULL, end_at timestamptz DEFAULT NULL,
  max_fires int DEFAULT NULL, exclude text[] DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL, catch_up_window interval DEFAULT NULL,
  queue text DEFAULT NULL, priority text DEFAULT NULL, tenant text DEFAULT NULL, timeout interval DEFAULT NULL, tags text[] DEFAULT NULL,
  trace text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = sexton, pg_temp SET lock_timeout = '2s' SET timezone = 'UTC' AS $$
DECLARE
  lane int := array_position(ARRAY['critical', 'high', 'normal', 'low'], coalesce(priority, 'normal')) - 1;
BEGIN
  IF coalesce(task, '') = '' THEN
    RAISE EXCEPTION 'task: name the task to run' USING ERRCODE = '22023', HINT = 'For example sexton.submit_schedule(''report'', …).';
  END IF;
  IF num_nonnulls(cron, rrule, every) <> 1 THEN
    RAISE EXCEPTION 'cron, rrule and every: give exactly one of them' USING ERRCODE = '22023';
  END IF;
  IF every <= interval '0' OR jitter < interval '0' OR timeout < interval '0' OR catch_up_window < interval '0' THEN
    RAISE EXCEPTION 'every, jitter, timeout, catch_up_window: a span is not negative' USING ERRCODE = '22023';
  END IF;
  IF lane IS NULL THEN
    RAISE EXCEPTION 'priority: "%" is not a lane', priority USING ERRCODE = '22023', HINT = 'Use critical, high, normal or low.';
  END IF;
  IF overlap NOT IN ('skip', 'queue', 'parallel', 'replace') THEN
    RAISE EXCEPTION 'overlap: "%" is unknown', overlap USING ERRCODE = '22023', HINT = 'Use skip, queue, parallel or replace.';
  END IF;
  IF catch_up NOT IN ('skip', 'latest', 'all') THEN
    RAISE EXCEPTION 'catch_up: "%" is unknown', catch_up USING ERRCODE = '22023', HINT = 'Use skip, latest or all.';
  END IF;
  IF octet_length(payload::text) > 393216 THEN  -- 262144 without the spaces that jsonb adds
    RAISE EXCEPTION 'payload: % bytes, the limit is 262144', octet_length(payload::text)
      USING ERRCODE = '22023', HINT = 'Store the data elsewhere and submit a reference to it.';
  END IF;
  RETURN (SELECT s.id FROM sexton.submit_schedules(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
      'task', task, 'name', name, 'queue', queue, 'lane', CASE WHEN priority IS NOT NULL THEN lane END, 'tenant', tenant,
      'timeout_s', extract(epoch FROM timeout), 'tags', to_jsonb(tags), 'trace', trace, 'submitted_by', session_user,
      -- As the planner writes it down again, so that the same call twice changes nothing.
      'schedule', jsonb_build_object('cron', cron, 'rrule', rrule, 'every', extract(epoch FROM every), 'timezone', nullif(timezone, 'UTC'),
        'jitter', CASE WHEN jitter > interval '0' THEN jsonb_build_object('max', extract(epoch FROM jitter)) END,
        'start_at', replace(to_jsonb(start_at)#>>'{}', '+00:00', 'Z'), 'end_at', replace(to_jsonb(end_at)#>>'{}', '+00:00', 'Z'), 'max_fires', max_fires, 'exclude', to_jsonb(exclude)),
      'recurrence', nullif(jsonb_strip_nulls(jsonb_build_object(
        'overlap', CASE WHEN overlap <> 'skip' THEN jsonb_build_object('policy', overlap) END,
        'catch_up', nullif(jsonb_strip_nulls(jsonb_build_object('policy', nullif(catch_up, 'latest'), 'window', extract(epoch FROM catch_up_window))), '{}'))), '{}')
    )) || jsonb_build_object('payload', coalesce(payload, '{}')))) AS s);
END
$$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
