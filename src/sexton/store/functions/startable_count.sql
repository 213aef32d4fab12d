-- How many of the runs that were let through under a key could start now.
-- Promises: counts of each tenant no more than it has room for, and only runs that a worker would take (has_takers).
-- Called by: release_parked. Locks: none.
CREATE OR REPLACE FUNCTION sexton.startable_count(wanted_key text, moment timestamptz) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(least(t.count, s.room)), 0)::int FROM (
    SELECT p.tenant, sum(p.count) AS count FROM (
      SELECT r.tenant, r.queue, r.task, count(*) AS count FROM sexton.runs r
      WHERE r.state = 'ready' AND r.limit_key = wanted_key GROUP BY r.tenant, r.queue, r.task) p
    WHERE sexton.has_takers(p.queue, p.task, moment) GROUP BY p.tenant) t
  CROSS JOIN LATERAL sexton.standing(t.tenant, false) s WHERE s.is_served
$$;
