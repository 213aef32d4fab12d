-- What a person may ask of a recurring job beside its schedule: a run with another payload, the fires of a past range, and that it stops
-- by itself once it fails again and again.

-- The payload of a run that was fired by hand with one of its own. It stays as long as the history of that run, which tells it.
CREATE TABLE sexton.run_payloads (
  run_id            uuid PRIMARY KEY,
  job_id            uuid NOT NULL,
  payload           jsonb NOT NULL,
  CONSTRAINT payload_is_at_most_256_kib CHECK (pg_column_size(payload) <= 131072 OR octet_length(payload::text) <= 393216)
);

-- Fires that failed for good, of active jobs with `pause_after` alone: what is counted. A planner clears what a success has ended.
CREATE TABLE sexton.failures (
  job_id            uuid NOT NULL,
  id                uuid NOT NULL,                  -- the execution that buried it
  said              text NOT NULL,                  -- the error, in one line
  PRIMARY KEY (job_id, id)
);

-- Which fires have run: one row of a range per fire, however often the job fires. One-time jobs (origin now) are not in it.
CREATE INDEX executions_ran ON sexton.executions (job_id, fire_at) WHERE status = 'succeeded' AND origin <> 'now';

-- A dead letter of a recurring job holds what its run ran with. A failed fire of a job that is to pause after so many is noted, and its
-- planner is to look at once. It waits for nobody: who holds the job's row is about to plan it, and looks then.
CREATE FUNCTION sexton.bury_recurring() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  NEW.payload := coalesce(
    (SELECT p.payload FROM run_payloads p WHERE p.run_id = NEW.run_id),
    (SELECT v.payload FROM job_versions v WHERE v.job_id = NEW.job_id AND v.version = NEW.job_version),
    NEW.payload);
  IF NEW.origin = 'schedule' THEN
    INSERT INTO failures (job_id, id, said)
    SELECT j.id, NEW.id, left(coalesce((NEW.error->>'type') || ': ' || (NEW.error->>'message'), NEW.reason), 300)
    FROM jobs_recurring j
    WHERE j.id = NEW.job_id AND j.recurrence->>'pause_after' IS NOT NULL AND j.paused_at IS NULL AND j.over_at IS NULL;
    IF FOUND THEN
      UPDATE jobs_recurring j SET plan_at = NEW.buried_at WHERE j.id = (
        SELECT k.id FROM jobs_recurring k WHERE k.id = NEW.job_id AND k.plan_at > NEW.buried_at FOR NO KEY UPDATE SKIP LOCKED);
      IF current_setting('sexton.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('sexton_plan', '');
      END IF;
    END IF;
  END IF;
  RETURN NEW;
END
$$;
CREATE TRIGGER bury_recurring BEFORE INSERT ON sexton.dead_letters FOR EACH ROW
  WHEN (NEW.job_id >= '80000000-0000-0000-0000-000000000000') EXECUTE FUNCTION sexton.bury_recurring();

-- As before, but for runs of a backfill: they wait for their turn, so no latest start and no deadline counts from their due time, and those
-- that were asked for one at a time stay so.
CREATE OR REPLACE FUNCTION sexton.revise(revised uuid, new sexton.schedule_document, moment timestamptz, OUT removed_count int, OUT begun_count int)
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
    start_by = CASE WHEN r.origin <> 'backfill' THEN r.due_at + make_interval(secs => (new.policy->>'start_within_s')::float8) END,
    deadline_at = CASE WHEN r.origin <> 'backfill' THEN r.due_at + make_interval(secs => (new.policy->>'deadline_s')::float8) END,
    -- What was let in stays in: several at once may have been legal until now.
    overlap = CASE WHEN r.state = 'ready' THEN r.overlap WHEN r.origin = 'backfill' THEN least(r.overlap, sexton.overlap_of(new.recurrence))
                   ELSE sexton.overlap_of(new.recurrence) END
  WHERE r.job_id = revised AND r.token = 0 AND r.state IN ('waiting', 'ready', 'blocked') AND r.origin <> 'replay';  -- that is of the version it replays
  DELETE FROM job_tags t WHERE t.job_id = revised AND t.tag <> ALL (coalesce(new.tags, '{}'));
  INSERT INTO job_tags (tag, job_id) SELECT DISTINCT tag, revised FROM unnest(new.tags) AS tag ON CONFLICT DO NOTHING;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sexton FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sexton.uuid7_floor(timestamptz) TO PUBLIC;
