-- Submits the jobs that deliver these executions to these subscriptions (in pairs), as of when they ended.
-- Promises: never keeps a run from ending: deliveries that cannot be submitted go to `held_deliveries`. A delivery raises no events itself,
-- or one that fails would report itself for ever. Works in parts of a thousand, because a document has a maximum size.
-- Called by: raise_events. Locks: those of submit_jobs, for which it waits 50 ms at most, once in a transaction (rule "never wait inside a batch").
CREATE OR REPLACE FUNCTION sexton.tell_subscribers(ids uuid[], names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET timezone = 'UTC' SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  size constant int := 1000;
  lowest uuid := (SELECT min(i::text COLLATE "C")::uuid FROM unnest(ids) AS i);
  highest uuid := (SELECT max(i::text COLLATE "C")::uuid FROM unnest(ids) AS i);
  deliveries jsonb;
  usual constant text := coalesce(current_setting('sexton.submit_lock_timeout', true), '');
BEGIN
  FOR n IN 1 .. cardinality(ids) BY size LOOP
    deliveries := NULL;
    BEGIN
      SELECT jsonb_agg(
        jsonb_set(s.delivery, '{policy,delivers}', jsonb_build_object('subscription', s.name, 'kind', k.kind, 'execution_id', e.id))
        || jsonb_build_object('name', 'webhook:' || s.name, 'tenant', e.tenant, 'trace', j.trace, 'payload', jsonb_build_object(
          'type', 'run.' || k.kind, 'timestamp', e.ended_at, 'data', sexton.event_data(k.kind, t.execution, j.name))))
      INTO deliveries
      FROM unnest(ids[n : n + size - 1], names[n : n + size - 1]) AS w(id, name)
      CROSS JOIN LATERAL (SELECT x AS execution FROM executions x WHERE x.id = w.id AND x.id BETWEEN lowest AND highest LIMIT 1) t
      CROSS JOIN LATERAL (SELECT (t.execution).id, (t.execution).job_id, (t.execution).status, (t.execution).tenant, (t.execution).ended_at) e
      CROSS JOIN LATERAL (SELECT o.name, o.kinds, o.delivery FROM subscriptions o WHERE o.name = w.name LIMIT 1) s
      LEFT JOIN LATERAL (SELECT jobs.name, jobs.trace, jobs.policy ? 'delivers' AS delivers FROM jobs WHERE jobs.id = e.job_id LIMIT 1) j ON true
      LEFT JOIN LATERAL (SELECT true AS is_dead FROM dead_letters d WHERE e.status <> 'succeeded' AND d.id = e.id LIMIT 1) d ON true
      CROSS JOIN LATERAL (VALUES
        (CASE e.status WHEN 'succeeded' THEN 'completed' WHEN 'missed' THEN 'missed' WHEN 'failed' THEN 'failed' WHEN 'timed_out' THEN 'failed'
          WHEN 'lost' THEN 'failed' END),
        (CASE WHEN d.is_dead THEN 'dead_lettered' END)) AS k(kind)
      WHERE j.delivers IS NOT TRUE AND k.kind = ANY (s.kinds);
      IF deliveries IS NOT NULL THEN
        PERFORM set_config('sexton.submit_lock_timeout', CASE WHEN sexton.may_wait() THEN '50ms' ELSE '1ms' END, true);  -- an error below sets it back as well
        PERFORM sexton.submit_jobs(deliveries, true, sexton.instant_of(lowest));
        PERFORM set_config('sexton.submit_lock_timeout', usual, true);
      END IF;
    EXCEPTION WHEN OTHERS THEN
      IF SQLSTATE IN ('55P03', '40P01') THEN
        PERFORM sexton.stop_waiting();
      END IF;
      INSERT INTO held_deliveries (held_at, said, delivery)
      SELECT sexton.instant_of(lowest), left(SQLERRM, 500), d FROM jsonb_array_elements(deliveries) AS d;
      RAISE WARNING 'events of runs that ended could not be handed on (%): %', SQLSTATE, SQLERRM
        USING HINT = 'They are in sexton.held_deliveries, and are submitted within a minute or two.';
    END;
  END LOOP;
END
$$;
