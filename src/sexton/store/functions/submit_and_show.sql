-- Submits jobs, and shows each new job in the same round trip.
-- Promises: those of submit_jobs, in the order given. Of a job that already existed, only the id.
-- Called by: store/work/jobs.sql. Locks: those of submit_jobs.
CREATE OR REPLACE FUNCTION sexton.submit_and_show(jobs jsonb, notify boolean DEFAULT true, at timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, created boolean, version int, task text, tenant text, queue text, lane smallint, name text, payload jsonb, policy jsonb,
  timeout_s real, at_most_once boolean, idempotency_key text, tags text[], submitted_at timestamptz, submitted_by text, trace text, due_at timestamptz)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  ids uuid[];
  fresh boolean[];
  lowest uuid;
  highest uuid;
BEGIN
  SELECT array_agg(s.id ORDER BY s.ord), array_agg(s.created ORDER BY s.ord) INTO ids, fresh
  FROM sexton.submit_jobs(jobs, notify, at) WITH ORDINALITY AS s(id, created, ord);
  -- The bounds skip partitions.
  SELECT min(a.id::text COLLATE "C")::uuid, max(a.id::text COLLATE "C")::uuid INTO lowest, highest
  FROM unnest(ids, fresh) AS a(id, created) WHERE a.created;
  RETURN QUERY
  SELECT a.id, a.created, j.version, j.task, j.tenant, j.queue, j.lane, j.name, j.payload, j.policy, j.timeout_s, j.at_most_once,
    j.idempotency_key, j.tags, j.submitted_at, j.submitted_by, j.trace, r.due_at
  FROM unnest(ids, fresh) WITH ORDINALITY AS a(id, created, ord)
  LEFT JOIN LATERAL (SELECT * FROM jobs WHERE a.created AND jobs.id = a.id AND jobs.id BETWEEN lowest AND highest LIMIT 1) j ON true
  LEFT JOIN LATERAL (SELECT * FROM runs WHERE a.created AND runs.id = a.id LIMIT 1) r ON true
  ORDER BY a.ord;
END
$$;
