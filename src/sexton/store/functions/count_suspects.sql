-- How many quarantined runs of these queues and tasks a worker in quarantine could claim, limits aside, counted up to `most`.
-- Promises: one index probe for each queue. Paused queues and tenants do not count.
-- Called by: store/fleet/remote_workers.sql, store/fleet/workers.sql, store/work/runs.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.count_suspects(wanted_queues text[], tasks text[], most int, moment timestamptz) RETURNS int LANGUAGE sql STABLE AS $$
  SELECT count(*)::int FROM (
    SELECT FROM unnest(wanted_queues) AS q(name) CROSS JOIN LATERAL (
      SELECT FROM sexton.runs r
      WHERE r.state = 'quarantined' AND r.queue = q.name AND r.due_at <= moment AND sexton.is_for(r, tasks, false, moment)
        AND NOT EXISTS (SELECT FROM sexton.tenants t WHERE t.name = r.tenant AND t.paused_at IS NOT NULL)
      ORDER BY r.queue, r.company DESC, r.due_at, r.id LIMIT most) s
    WHERE NOT EXISTS (SELECT FROM sexton.queues o WHERE o.name = q.name AND o.paused_at IS NOT NULL)
    LIMIT most) c
$$;
