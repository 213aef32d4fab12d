-- How long (s) a worker keeps a run after it was declared lost; null: not at all.
-- Promises: a run with a lease of its own is kept for that. If the worker was declared lost because its sessions ended (`left_s`), it keeps
-- at-most-once runs and those with an own lease as long as it would without that.
-- Called by: store/fleet/workers.sql, store/work/runs.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.kept_s(own_lease_s real, at_most_once boolean, lease_s float8, left_s real) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN own_lease_s IS NOT NULL THEN own_lease_s - lease_s + coalesce(left_s, 0) WHEN at_most_once THEN left_s END
$$;
