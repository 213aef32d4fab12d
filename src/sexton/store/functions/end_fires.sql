-- Ends the fires of a recurring job that no worker has started, because the job is over. Answers how many.
-- Promises: a fire that is due gets its row in history, by finish_runs: status cancelled, with the reason. A planned fire that is not due
-- yet is removed and gets no row. Several statements: a promotion or a claim that the first had to wait for is seen by the next.
-- Called by: store/work/schedules.sql. Locks: call it with the row of the job locked (rule "job row first"); it then locks its runs.
CREATE OR REPLACE FUNCTION sexton.end_fires(over uuid, why text, moment timestamptz, states text[] DEFAULT '{waiting,ready,parked,blocked}')
RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  removed_count int;
  reports jsonb;
BEGIN
  DELETE FROM runs r
  WHERE r.job_id = over AND r.origin = 'schedule' AND r.token = 0 AND r.state = 'waiting' AND r.due_at > moment;
  GET DIAGNOSTICS removed_count = ROW_COUNT;
  SELECT jsonb_agg(jsonb_build_object('run_id', r.id, 'token', 0, 'next', 'end', 'status', 'cancelled', 'ending', 'cancelled', 'reason', why) ORDER BY r.id)
  INTO reports FROM runs r
  WHERE r.job_id = over AND r.origin = 'schedule' AND r.token = 0 AND r.state = ANY (states);
  IF reports IS NULL THEN
    RETURN removed_count;
  END IF;
  RETURN removed_count + (SELECT count(*) FROM sexton.finish_runs(reports, moment));
END
$$;
