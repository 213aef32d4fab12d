-- The worker id that holds the runs which were handed over to their target.
-- Promises: a constant. It is the id of no process, so no heartbeat of it can be missing.
-- Called by: store/fleet/workers.sql, store/views/evidence.sql, store/work/callbacks.sql, store/work/runs.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.callbacks() RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT 'ca11bac5-0000-4000-8000-000000000000'::uuid
$$;
