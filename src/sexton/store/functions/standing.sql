-- What a tenant may have in a claim: its weight, how many more runs if it has a limit, and whether it is served at all.
-- Promises: a tenant with a limit gets nothing ahead of a free slot (`ahead`).
-- Called by: pick_runs, release_startable, startable_count. Locks: none.
CREATE OR REPLACE FUNCTION sexton.standing(tenant text, ahead boolean) RETURNS TABLE (weight int, room int, is_served boolean) LANGUAGE sql STABLE AS $$
  SELECT coalesce(t.weight, 1), t.room, t.paused_at IS NULL AND (t.room IS NULL OR (t.room > 0 AND NOT ahead)) FROM (SELECT) AS one LEFT JOIN LATERAL (
    SELECT o.weight, o.paused_at, o.running_max - (
      SELECT count(*) FROM sexton.slots s WHERE s.key = '@tenant:' || o.name AND s.run_id IS NOT NULL)::int AS room
    FROM sexton.tenants o WHERE o.name = tenant OFFSET 0) t ON true
$$;
