-- Writes the next version of a recurring job; the old version is kept in `job_versions`.
-- Promises: if the rule stays (keeps_rule), what was planned moves to the new version, so that no fire is lost to an edit; else fires that are
-- not due are removed and planned again, and those that are due move to the new version. History gets one row for the time that no planner
-- has planned. The plan also stays where only the minute and second are written into a rule of the last release: the planned fire comes as it
-- was planned, and those after it by the new text. A claim that came first wins. The limit of runs that have not started follows the job and
-- the payload they were fired with. Runs of a backfill wait for their turn: no latest start and no deadline counts from their due time, and
-- those that were asked for one at a time stay so.
-- Called by: submit_schedules, store/work/schedules.sql. Locks: call it with the row of the job locked (rule "job row first"); it then locks
-- the runs of the job.
CREATE OR REPLACE FUNCTION sexton.revise(revised uuid, new sexton.schedule_document, moment timestamptz, OUT removed_count int, OUT begun_count int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off AS $$
DECLARE
  old jobs_recurring;
  stays boolean;
  completed boolean;
  cursor_at timestamptz;
BEGIN
  SELECT j.* INTO old FROM jobs_recurring j WHERE j.id = revised;
  completed := NOT sexton.same_rule(old.schedule, new.schedule)
    AND sexton.same_rule(jsonb_strip_nulls(jsonb_build_object('anchor_at', old.schedule->'anchor_at')) || new.schedule, old.schedule);
  IF completed THEN
    new.schedule := jsonb_strip_nulls(jsonb_build_object('anchor_at', old.schedule->'anchor_at')) || new.schedule;
  END IF;
  stays := sexton.keeps_rule(old, new);
  IF stays THEN
    SELECT old.plan_cursor_at, 0, count(*) INTO cursor_at, removed_count, begun_count FROM runs r WHERE r.job_id = revised AND r.token > 0;
  ELSE
    IF old.plan_cursor_at < moment THEN
      -- SQL cannot compute the fires of a rule. A Python caller has decided about them, which moved the cursor.
      PERFORM sexton.ensure_partitions(moment);
      INSERT INTO executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane, origin, status, queue, tenant,
                              task, reason, result)
      SELECT sexton.uuid7((extract(epoch FROM moment) * 1000000)::bigint), old.id, sexton.uuid7((extract(epoch FROM moment) * 1000000)::bigint),
        old.plan_cursor_at, old.plan_cursor_at, moment, 0, old.version, 0, 0, old.lane, 'schedule',
        CASE WHEN old.paused_at IS NULL THEN 'missed' ELSE 'paused' END, old.queue, old.tenant, old.task,
        'all fires after the first instant, up to the last: the rule was replaced before they were planned',
        jsonb_build_object('first', old.plan_cursor_at, 'last', moment, 'count', NULL);
    END IF;
    -- What is due stays due. A promoter decides about it, and `recall` does not ask the new rule about a fire of the old one.
    UPDATE runs r SET state = 'blocked'
    WHERE r.job_id = revised AND r.origin = 'schedule' AND r.token = 0 AND r.state = 'waiting' AND r.due_at <= moment;
    SELECT u.cursor_at, u.removed_count, u.begun_count INTO cursor_at, removed_count, begun_count
    FROM sexton.unplan(ARRAY[revised], moment, '{waiting}') u;
  END IF;
  INSERT INTO job_versions (job_id, version, queue, lane, name, payload, policy, timeout_s, tags, fire_at, replaced_at, replaced_by, schedule, recurrence)
  VALUES (old.id, old.version, old.queue, old.lane, old.name, old.payload, old.policy, old.timeout_s, old.tags, coalesce(cursor_at, moment), moment,
          new.submitted_by, old.schedule, old.recurrence);
  UPDATE jobs_recurring j SET version = j.version + 1, task = new.task, name = new.name, queue = new.queue, lane = new.lane,
    payload = new.payload, policy = new.policy, timeout_s = new.timeout_s, at_most_once = new.at_most_once, tags = new.tags,
    recurrence = new.recurrence, schedule = CASE WHEN sexton.same_rule(j.schedule, new.schedule) THEN j.schedule ELSE new.schedule END,
    fire_count = CASE WHEN completed OR sexton.same_rule(j.schedule, new.schedule) THEN greatest(j.fire_count - removed_count, 0) ELSE 0 END,
    plan_cursor_at = cursor_at, plan_at = CASE WHEN stays THEN j.plan_at WHEN j.paused_at IS NULL THEN moment END
  WHERE j.id = revised;
  UPDATE runs r SET job_version = old.version + 1, task = new.task, queue = new.queue, lane = new.lane, aged = 0,
    limit_key = sexton.limit_key_of(new.policy, coalesce((SELECT p.payload FROM run_payloads p WHERE p.run_id = r.id), new.payload)), slot = NULL,
    state = CASE WHEN r.state NOT IN ('ready', 'parked') THEN r.state WHEN new.policy ? 'limit' THEN 'parked' ELSE 'ready' END, at_most_once = new.at_most_once,
    timeout_s = new.timeout_s, lease_s = (new.policy->>'lease_s')::real,
    start_by = CASE WHEN r.origin <> 'backfill' THEN r.due_at + make_interval(secs => (new.policy->>'start_within_s')::float8) END,
    deadline_at = CASE WHEN r.origin <> 'backfill' THEN r.due_at + make_interval(secs => (new.policy->>'deadline_s')::float8) END,
    -- An admitted run stays admitted: several at once may have been allowed until now.
    overlap = CASE WHEN r.state IN ('ready', 'parked') THEN r.overlap WHEN r.origin = 'backfill' THEN least(r.overlap, sexton.overlap_of(new.recurrence))
                   ELSE sexton.overlap_of(new.recurrence) END
  WHERE r.job_id = revised AND r.token = 0 AND r.state IN ('waiting', 'ready', 'parked', 'blocked') AND r.origin <> 'replay';  -- a replay keeps the version that it replays
  DELETE FROM job_tags t WHERE t.job_id = revised AND t.tag <> ALL (coalesce(new.tags, '{}'));
  INSERT INTO job_tags (tag, job_id) SELECT DISTINCT tag, revised FROM unnest(new.tags) AS tag ON CONFLICT DO NOTHING;
END
$$;
