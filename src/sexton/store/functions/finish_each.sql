-- Ends each run by itself, in one round trip: those of a batch that failed because another transaction holds something that one of
-- them needs.
-- Promises: rule "a waiting caller leaves the group". A report that would have to wait changes nothing and has `is_locked`; the others are as in
-- finish_runs, which explains the reports.
-- Called by: store/work/runs.sql. Locks: those of finish_runs, 5 ms at most for each lock; for limits and deliveries, 50 ms
-- at most for all reports together (may_wait).
CREATE OR REPLACE FUNCTION sexton.finish_each(reports jsonb, at timestamptz DEFAULT NULL)
RETURNS TABLE (run_id uuid, execution_id uuid, state text, is_locked boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '5ms' AS $$
DECLARE
  report jsonb;
BEGIN
  FOR report IN SELECT d.report FROM jsonb_array_elements(reports) WITH ORDINALITY AS d(report, ord) ORDER BY d.ord LOOP
    BEGIN
      RETURN QUERY SELECT f.run_id, f.execution_id, f.state, false FROM sexton.finish_runs(jsonb_build_array(report), at) f;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      RETURN QUERY SELECT (report->>'run_id')::uuid, NULL::uuid, NULL::text, true;
    END;
  END LOOP;
END
$$;
