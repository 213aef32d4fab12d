-- One of 64 slices of all jobs: the last six bits of the id, which are random in every id that Sexton makes. Schedulers divide the slices
-- among themselves.
-- Called by: submit_jobs, store/work/subscriptions.sql, dead_letters.sql, backfill.sql, schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.partition_of(job_id uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (get_byte(uuid_send(job_id), 15) & 63)::smallint
$$;
