-- Whether a worker or a scheduler is alive. Arguments: last heartbeat, when it was declared dead, its lease (s; null: of a release that did
-- not write it).
-- Promises: true if it was not declared dead and its last heartbeat is younger than its lease. One that is neither alive nor declared dead
-- is silent. The views judge by this, because with all schedulers dead no process declares another dead.
-- Called by: store/fleet/workers.sql, store/views/diagnosis.sql, store/views/evidence.sql, store/views/overview.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.is_alive(beat_at timestamptz, lost_at timestamptz, lease_s float8, moment timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT lost_at IS NULL AND beat_at > moment - make_interval(secs => coalesce(lease_s, 30))
$$;
