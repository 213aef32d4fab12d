-- Locks the runs of these jobs that a schedule planned and that have not started; returns the jobs of which it got all.
-- Promises: rule "never wait inside a batch". A job with a run that another session has locked is not in the answer: the caller leaves it
-- for the next pass.
-- Called by: recall_late, store/work/schedules.sql. Locks: the runs, in id order with SKIP LOCKED. Call it with the rows of the jobs locked
-- (rule "job row first").
CREATE OR REPLACE FUNCTION sexton.hold_runs(job_ids uuid[], states text[]) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  seen uuid[];
  held uuid[];
BEGIN
  SELECT array_agg(r.id) INTO seen FROM runs r WHERE r.job_id = ANY (job_ids) AND r.origin = 'schedule' AND r.token = 0 AND r.state = ANY (states);
  IF seen IS NULL THEN
    RETURN job_ids;
  END IF;
  SELECT array_agg(f.id) INTO held FROM (SELECT r.id FROM runs r WHERE r.id = ANY (seen) ORDER BY r.id FOR UPDATE SKIP LOCKED) f;
  RETURN ARRAY(
    SELECT unnest(job_ids) EXCEPT
    SELECT r.job_id FROM runs r WHERE r.id = ANY (ARRAY(SELECT unnest(seen) EXCEPT SELECT unnest(held))));
END
$$;
