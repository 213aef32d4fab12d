-- The `data` of an event that is sent to a subscriber.
-- Promises: bounded size: type and message of an error only, no result above 16 KiB. A gap of a schedule is one event without a run id.
-- Called by: tell_subscribers. Locks: none.
CREATE OR REPLACE FUNCTION sexton.event_data(kind text, e sexton.executions, job_name text) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('job_id', e.job_id, 'name', job_name, 'tenant', e.tenant, 'queue', e.queue, 'handler', e.task,
      'run_id', CASE WHEN (e.status = 'missed' AND e.result ? 'count') IS NOT TRUE THEN e.run_id END, 'execution_id', e.id, 'origin', e.origin,
      'fire_at', e.fire_at, 'attempt', e.attempt, 'status', e.status, 'started_at', e.started_at, 'ended_at', e.ended_at, 'reason', left(e.reason, 500),
      'error', CASE WHEN e.error IS NOT NULL THEN jsonb_build_object('type', left(e.error->>'type', 200), 'message', left(e.error->>'message', 2000)) END)
    || CASE
      WHEN kind = 'failed' THEN jsonb_build_object('will_retry', EXISTS (SELECT FROM sexton.runs r WHERE r.id = e.run_id))
      WHEN kind = 'missed' THEN jsonb_build_object('first_at', coalesce((e.result->>'first')::timestamptz, e.fire_at),
        'last_at', coalesce((e.result->>'last')::timestamptz, e.fire_at), 'count', coalesce(e.result->'count', '1'))
      WHEN kind <> 'completed' THEN '{}'
      WHEN octet_length(e.result::text) > 16384 THEN '{"result_omitted": true}'
      ELSE jsonb_build_object('result', e.result) END
$$;
