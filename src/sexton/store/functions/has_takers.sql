-- Whether a worker would take a ready run of this queue and task now.
-- Promises: true only if the queue is not paused and has a start left, and a live worker that does not drain serves both.
-- Called by: release_startable, startable_count. Locks: none.
CREATE OR REPLACE FUNCTION sexton.has_takers(run_queue text, run_task text, moment timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (
      SELECT FROM sexton.queues q WHERE q.name = run_queue
        AND (q.paused_at IS NOT NULL OR (q.release_rate IS NOT NULL AND sexton.tokens(q.bucket_at, q.release_rate, q.release_burst, moment) <= 0)))
    AND EXISTS (SELECT FROM sexton.workers w WHERE w.lost_at IS NULL AND NOT w.draining AND NOT w.quarantine AND run_queue = ANY (w.queues) AND run_task = ANY (w.tasks))
$$;
