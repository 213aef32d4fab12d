-- Creates the missing partitions between two instants: jobs with their tags, versions and endings by ISO week, executions by day. The
-- janitor makes them ahead.
-- Promises: the bounds are in UTC whatever the time zone of the session. Answers how many it made.
-- Called by: ensure_partitions, store/work/retention.sql, the baseline. Locks: those of make_partition.
CREATE OR REPLACE FUNCTION sexton.make_partitions(first timestamptz, last timestamptz) RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET timezone = 'UTC' AS $$
DECLARE
  made int := 0;
  step timestamptz;
BEGIN
  FOR step IN SELECT generate_series(date_trunc('week', first), last, interval '7 days') LOOP
    -- The endings last: `ensure_partitions` looks for theirs alone.
    made := made + make_partition('jobs', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('job_tags', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('job_versions', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('endings', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int;
  END LOOP;
  FOR step IN SELECT generate_series(date_trunc('day', first), last, interval '1 day') LOOP
    made := made + make_partition('executions', to_char(step, 'YYYYMMDD'), step, step + interval '1 day')::int;
  END LOOP;
  RETURN made;
END
$$;
