-- A scheduler without a heartbeat for this long (s) is not alive.
-- Promises: a constant, the same for other schedulers and for the views.
-- Called by: store/fleet/workers.sql, store/views/diagnosis.sql, store/views/evidence.sql, store/views/overview.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.node_lease_s() RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 6.0::float8 $$;
