-- Submits each job by itself, in one round trip: those of a batch that failed because another transaction holds something that one of
-- them needs.
-- Promises: rule "a waiting caller leaves the group". A job that would have to wait is not submitted, and `waits_for` says for what: 'key',
-- 'unique', 'limit', 'tenant' or 'other'. A job that is rejected for another reason has neither an id nor `waits_for`. The others are
-- submitted. Answers in the order given.
-- Called by: store/work/jobs.sql. Locks: those of submit_jobs, 1 ms at most for each job.
CREATE OR REPLACE FUNCTION sexton.submit_each(jobs jsonb, notify boolean DEFAULT true, at timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean, waits_for text)
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  job jsonb;
  place text;
  before text := coalesce(current_setting('sexton.submit_lock_timeout', true), '');
BEGIN
  PERFORM set_config('sexton.submit_lock_timeout', '1ms', true);
  FOR job IN SELECT d.job FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(job, ord) ORDER BY d.ord LOOP
    BEGIN
      SELECT s.id, s.created, NULL INTO id, created, waits_for FROM sexton.submit_jobs(jsonb_build_array(job), notify, at) s;
    EXCEPTION
      WHEN lock_not_available OR deadlock_detected THEN
        GET STACKED DIAGNOSTICS place = PG_EXCEPTION_CONTEXT;
        id := NULL;
        created := NULL;
        waits_for := CASE WHEN place LIKE '%claim_keys(%' THEN 'key' WHEN place LIKE '%claim_unique(%' THEN 'unique'
          WHEN place LIKE '%make_limits(%' THEN 'limit' WHEN place LIKE '%check_submissions(%' THEN 'tenant' ELSE 'other' END;
      WHEN OTHERS THEN
        id := NULL;
        created := NULL;
        waits_for := NULL;
    END;
    RETURN NEXT;
  END LOOP;
  PERFORM set_config('sexton.submit_lock_timeout', before, true);
END
$$;
