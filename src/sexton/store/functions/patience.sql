-- How late a planned fire may be promoted before its catch-up policy decides.
-- Promises: a constant, longer than the schedulers need for any crowd of due runs.
-- Called by: recall_late, store/fleet/workers.sql, store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.patience() RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '1 minute' $$;
