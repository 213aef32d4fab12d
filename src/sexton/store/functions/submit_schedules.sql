-- Writes schedules: new ones, and under a name that already exists a new version of the old one; an equal one stays as it is.
-- Promises: they are planned at once: a Python client plans in the same transaction, for others a planner is woken. `on_name` is update
-- (default) or refuse (SQLSTATE SX409). Fields of a document: those of the type sexton.schedule_document. Answers in the order given.
-- Called by: submit_schedule, store/work/schedules.sql. Locks: the rows of jobs whose name exists; lock_timeout 2 s,
-- or what the session sets as sexton.schedule_lock_timeout or sexton.submit_wait, as in submit_jobs.
CREATE OR REPLACE FUNCTION sexton.submit_schedules(schedules jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean, changed boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  micros bigint := extract(epoch FROM moment) * 1000000;
  fresh uuid[];     -- the id each document gets if it is new
  answers uuid[];   -- the id in the answer
  changes boolean[];
  known uuid[];     -- the job that already has its name
  older record;
  wait text;
BEGIN
  wait := coalesce(nullif(current_setting('sexton.schedule_lock_timeout', true), ''), nullif(current_setting('sexton.submit_wait', true), ''));
  IF wait IS NOT NULL THEN  -- until the end of this function, because it has a SET clause
    PERFORM set_config('lock_timeout', wait, true);
  END IF;
  SELECT array_agg(sexton.recurring_id(g.micros) ORDER BY g.micros) INTO fresh
  FROM generate_series(micros, micros + jsonb_array_length(schedules) - 1) AS g(micros);
  answers := fresh;
  changes := array_fill(true, ARRAY[coalesce(array_length(fresh, 1), 0)]);

  -- Waits here for another session that inserts the same name; the job is found below.
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
      RAISE EXCEPTION 'name: a schedule named "%" already exists', older.name
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
