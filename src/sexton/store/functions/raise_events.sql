-- Trigger on `executions`, after every statement that wrote history: finds the subscriptions that want these executions.
-- Promises: without an active subscription it costs one probe of an empty index.
-- Called by: triggers. Locks: those of submit_jobs, through tell_subscribers.
CREATE OR REPLACE FUNCTION sexton.raise_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  ids uuid[];
  names text[];
BEGIN
  IF EXISTS (SELECT FROM sexton.subscriptions s WHERE s.paused_at IS NULL) THEN
    SELECT array_agg(e.id), array_agg(s.name) INTO ids, names
    FROM written e CROSS JOIN LATERAL (
      SELECT o.name FROM sexton.subscriptions o
      WHERE o.anchor = ANY (ARRAY['', 'queue ' || e.queue, 'tenant ' || e.tenant, 'job ' || e.job_id::text]) AND o.paused_at IS NULL
        AND (o.tenant IS NULL OR o.tenant = e.tenant) AND (o.queue IS NULL OR o.queue = e.queue)
        AND o.kinds && CASE e.status WHEN 'succeeded' THEN '{completed}'::text[] WHEN 'missed' THEN '{missed,dead_lettered}'
          WHEN 'failed' THEN '{failed,dead_lettered}' WHEN 'timed_out' THEN '{failed,dead_lettered}' WHEN 'lost' THEN '{failed,dead_lettered}'
          WHEN 'released' THEN '{dead_lettered}' WHEN 'snoozed' THEN '{dead_lettered}' ELSE '{}' END
      OFFSET 0) s;  -- by the index, for each
    IF ids IS NOT NULL THEN
      PERFORM sexton.tell_subscribers(ids, names);
    END IF;
  END IF;
  RETURN NULL;
END
$$;
