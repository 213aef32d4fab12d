-- The value of `runs.overlap` for the overlap policy of a recurring job.
-- Promises: 2 for `parallel`, else 1, never 0: that is for one-time jobs.
-- Called by: revise, store/work/backfills.sql, store/work/dead_letters.sql, store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.overlap_of(recurrence jsonb) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN recurrence->'overlap'->>'policy' = 'parallel' THEN 2 ELSE 1 END::smallint
$$;
