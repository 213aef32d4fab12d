-- One of 64 slices of all jobs, which schedulers divide among themselves.
-- Promises: 0 to 63, and never another for the same id: its last six bits, which are random in every id that Sexton makes.
-- Called by: submit_jobs, store/views/locked_rows.sql, store/work/backfills.sql, store/work/dead_letters.sql, store/work/schedules.sql,
-- store/work/subscriptions.sql.
-- Locks: none.
CREATE OR REPLACE FUNCTION sexton.partition_of(job_id uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (get_byte(uuid_send(job_id), 15) & 63)::smallint
$$;
