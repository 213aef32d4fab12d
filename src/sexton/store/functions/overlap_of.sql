-- The value of `runs.overlap` for the overlap policy of a recurring job: 2 for `parallel`, else 1.
-- Called by: revise, store/work/dead_letters.sql, backfill.sql, schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.overlap_of(recurrence jsonb) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN recurrence->'overlap'->>'policy' = 'parallel' THEN 2 ELSE 1 END::smallint
$$;
