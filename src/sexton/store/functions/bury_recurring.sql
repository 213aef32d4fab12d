-- Trigger on `dead_letters`: completes the dead letter of a recurring job.
-- Promises: the letter holds the payload that its run ran with. If the job has `pause_after`, the failed fire is recorded in
-- `failures` and the planner is asked to look at the job at once.
-- Called by: triggers. Locks: the job row, with SKIP LOCKED: a session that holds the row is about to plan the job and looks at `failures`
-- then, or it is no service; the planner finds the failures 10 s later at the latest (`failures.reached`).
CREATE OR REPLACE FUNCTION sexton.bury_recurring() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
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
