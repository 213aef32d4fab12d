-- Submits one job from any language, inside any transaction:
--   SELECT sexton.submit('send_invoice', '{"user_id": 42}', run_at => now() + interval '1 day');
-- Promises: SECURITY DEFINER with a fixed search path: a role with EXECUTE on this function and USAGE on the schema may submit and can do
-- nothing else. Arguments are only ever added, at the end and with a default: no service calls this function, so that
-- none of the last release misses the old signature. Wrong arguments are rejected with SQLSTATE 22023 and a message that names the argument.
-- Called by: users. Locks: those of submit_jobs; lock_timeout 2 s.
-- replaces: sexton.submit(text, jsonb, timestamptz, interval, text, text, text, text, text, interval, interval, text[], text[], interval, text)
CREATE OR REPLACE FUNCTION sexton.submit(
  task text, payload jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, queue text DEFAULT NULL,
  priority text DEFAULT NULL, tenant text DEFAULT NULL, name text DEFAULT NULL, key text DEFAULT NULL,
  key_ttl interval DEFAULT NULL, timeout interval DEFAULT NULL, tags text[] DEFAULT NULL, unique_by text[] DEFAULT NULL,
  unique_for interval DEFAULT NULL, trace text DEFAULT NULL, deadline interval DEFAULT NULL, start_within interval DEFAULT NULL,
  lease interval DEFAULT NULL, progress_within interval DEFAULT NULL, grace interval DEFAULT NULL, max_lost int DEFAULT NULL,
  max_attempts int DEFAULT NULL, delivery text DEFAULT NULL, limit_key text DEFAULT NULL, limit_running int DEFAULT NULL,
  limit_count int DEFAULT NULL, limit_per interval DEFAULT NULL, limit_burst int DEFAULT NULL, limit_ordered boolean DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = sexton, pg_temp SET lock_timeout = '2s'
SET timezone = 'UTC' AS $$
DECLARE
  lane int := array_position(ARRAY['critical', 'high', 'normal', 'low'], coalesce(priority, 'normal')) - 1;
  part text;
BEGIN
  IF coalesce(task, '') = '' THEN
    RAISE EXCEPTION 'task: name the task to run' USING ERRCODE = '22023', HINT = 'For example sexton.submit(''send_invoice'', …).';
  END IF;
  PERFORM sexton.check_text('task', task), sexton.check_text('queue', queue), sexton.check_text('tenant', tenant),
    sexton.check_text('name', name), sexton.check_text('key', key), sexton.check_text('trace', trace), sexton.check_tags(tags);
  PERFORM sexton.check_span('delay', delay), sexton.check_span('timeout', timeout), sexton.check_span('key_ttl', key_ttl),
    sexton.check_span('unique_for', unique_for);
  IF run_at IS NOT NULL AND delay IS NOT NULL THEN
    RAISE EXCEPTION 'run_at and delay: give one of them, not both' USING ERRCODE = '22023';
  END IF;
  IF NOT isfinite(run_at) THEN
    RAISE EXCEPTION 'run_at: % is not an instant', run_at USING ERRCODE = '22023', HINT = 'Leave it out to run now.';
  END IF;
  IF lane IS NULL THEN
    RAISE EXCEPTION 'priority: "%" is not a lane', priority USING ERRCODE = '22023', HINT = 'Use critical, high, normal or low.';
  END IF;
  IF delivery NOT IN ('at_least_once', 'at_most_once') THEN
    RAISE EXCEPTION 'delivery: "%" is unknown', delivery USING ERRCODE = '22023', HINT = 'Use at_least_once or at_most_once.';
  END IF;
  IF octet_length(payload::text) > 393216 THEN  -- 262144 without the spaces that jsonb adds
    RAISE EXCEPTION 'payload: % bytes, the limit is 262144', octet_length(payload::text)
      USING ERRCODE = '22023', HINT = 'Store the data elsewhere and submit a reference to it.';
  END IF;
  IF unique_by = '{}' THEN
    RAISE EXCEPTION 'unique_by: name at least one part of the job'
      USING ERRCODE = '22023', HINT = 'Use task, name, payload or a path such as payload.user_id.';
  END IF;
  FOREACH part IN ARRAY coalesce(unique_by, '{}') LOOP
    IF part NOT IN ('task', 'name', 'payload') AND part NOT LIKE 'payload.%' THEN
      RAISE EXCEPTION 'unique_by: "%" is not a part of a job', part
        USING ERRCODE = '22023', HINT = 'Use task, name, payload or a path such as payload.user_id.';
    END IF;
  END LOOP;
  RETURN (SELECT s.id FROM sexton.submit_jobs(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
      'task', task, 'run_at', run_at, 'delay_s', extract(epoch FROM delay), 'queue', queue,
      'lane', CASE WHEN priority IS NOT NULL THEN lane END, 'tenant', tenant, 'name', name, 'key', key,
      'key_ttl_s', extract(epoch FROM key_ttl), 'timeout_s', extract(epoch FROM timeout), 'tags', to_jsonb(tags), 'trace', trace,
      'submitted_by', session_user, 'at_most_once', delivery = 'at_most_once',
      'policy', sexton.policy_document(max_attempts, deadline, start_within, lease, progress_within, grace, max_lost),
      'limit', sexton.limit_document(limit_key, limit_running, limit_count, limit_per, limit_burst, limit_ordered),
      'unique', CASE WHEN unique_by IS NOT NULL THEN jsonb_build_object('by', to_jsonb(unique_by), 'holds_s', extract(epoch FROM unique_for)) END
    )) || jsonb_build_object('payload', coalesce(payload, '{}')))) AS s);
END
$$;
