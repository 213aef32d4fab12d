-- Submits one recurring job from any language, inside any transaction:
--   SELECT sexton.submit_schedule('report', name => 'report', cron => '0 9 * * MON-FRI', timezone => 'America/New_York');
-- Promises: rights and arguments as for sexton.submit. A fault in the rule itself is found by a planner: the job then ends as failed and says why.
-- A cron line that other programs read differently is accepted: `sexton why` and `sexton jobs show` show the other reading.
-- Called by: users. Locks: those of submit_schedules; lock_timeout 2 s.
-- replaces: sexton.submit_schedule(text, jsonb, text, text, text, interval, text, interval, timestamptz, timestamptz, int, text[], text, text, interval, text, text, text, interval, text[], text)
-- replaces: sexton.submit_schedule(text, jsonb, text, text, text, interval, text, interval, timestamptz, timestamptz, int, text[], text, text, interval, text, text, text, interval, text[], text, interval, interval, interval, interval, interval, int, int, text, text, int, int, interval, int, boolean, text, int)
CREATE OR REPLACE FUNCTION sexton.submit_schedule(
  task text, payload jsonb DEFAULT '{}', name text DEFAULT NULL, cron text DEFAULT NULL, rrule text DEFAULT NULL, every interval DEFAULT NULL,
  timezone text DEFAULT NULL, jitter interval DEFAULT NULL, start_at timestamptz DEFAULT NULL, end_at timestamptz DEFAULT NULL,
  max_fires int DEFAULT NULL, exclude text[] DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL, catch_up_window interval DEFAULT NULL,
  queue text DEFAULT NULL, priority text DEFAULT NULL, tenant text DEFAULT NULL, timeout interval DEFAULT NULL, tags text[] DEFAULT NULL,
  trace text DEFAULT NULL, deadline interval DEFAULT NULL, start_within interval DEFAULT NULL,
  lease interval DEFAULT NULL, progress_within interval DEFAULT NULL, grace interval DEFAULT NULL, max_lost int DEFAULT NULL,
  max_attempts int DEFAULT NULL, delivery text DEFAULT NULL, limit_key text DEFAULT NULL, limit_running int DEFAULT NULL,
  limit_count int DEFAULT NULL, limit_per interval DEFAULT NULL, limit_burst int DEFAULT NULL, limit_ordered boolean DEFAULT NULL,
  on_resume text DEFAULT NULL, pause_after int DEFAULT NULL, dst_gap text DEFAULT NULL, dst_overlap text DEFAULT NULL,
  dialect text DEFAULT NULL, anchor_at timestamptz DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = sexton, pg_temp SET lock_timeout = '2s' SET timezone = 'UTC' AS $$
DECLARE
  lane int := array_position(ARRAY['critical', 'high', 'normal', 'low'], coalesce(priority, 'normal')) - 1;
  wrong record;
BEGIN
  IF coalesce(task, '') = '' THEN
    RAISE EXCEPTION 'task: name the task to run' USING ERRCODE = '22023', HINT = 'For example sexton.submit_schedule(''report'', …).';
  END IF;
  PERFORM sexton.check_text('task', task), sexton.check_text('queue', queue), sexton.check_text('tenant', tenant),
    sexton.check_text('name', name), sexton.check_text('trace', trace), sexton.check_tags(tags);
  IF every <= interval '0' THEN
    RAISE EXCEPTION 'every: % must be greater than zero', every USING ERRCODE = '22023';
  END IF;
  PERFORM sexton.check_span('every', every), sexton.check_span('jitter', jitter), sexton.check_span('timeout', timeout),
    sexton.check_span('catch_up_window', catch_up_window);
  IF num_nonnulls(cron, rrule, every) <> 1 THEN
    RAISE EXCEPTION 'cron, rrule and every: give exactly one of them' USING ERRCODE = '22023';
  END IF;
  IF jitter > interval '30 minutes' THEN
    RAISE EXCEPTION 'jitter: % is longer than 30 minutes', jitter USING ERRCODE = '22023';
  END IF;
  IF lane IS NULL THEN
    RAISE EXCEPTION 'priority: "%" is not a lane', priority USING ERRCODE = '22023', HINT = 'Use critical, high, normal or low.';
  END IF;
  SELECT c.* INTO wrong FROM (VALUES
      ('overlap', overlap, '{skip,queue,parallel,replace}'::text[]), ('catch_up', catch_up, '{skip,latest,all}'), ('on_resume', on_resume, '{skip,latest,all}'),
      ('delivery', delivery, '{at_least_once,at_most_once}'), ('dialect', dialect, '{cron,quartz,strict}'),
      ('dst_gap', dst_gap, '{after,skip}'), ('dst_overlap', dst_overlap, '{first,last,both}')
    ) AS c (argument, said, choices) WHERE c.said <> ALL (c.choices) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION '%: "%" is unknown', wrong.argument, wrong.said USING ERRCODE = '22023', HINT = format('Use one of: %s.', array_to_string(wrong.choices, ', '));
  END IF;
  PERFORM sexton.check_count('pause_after', pause_after, 10000);
  IF octet_length(payload::text) > 393216 THEN  -- 262144 without the spaces that jsonb adds
    RAISE EXCEPTION 'payload: % bytes, the limit is 262144', octet_length(payload::text)
      USING ERRCODE = '22023', HINT = 'Store the data elsewhere and submit a reference to it.';
  END IF;
  RETURN (SELECT s.id FROM sexton.submit_schedules(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
      'task', task, 'name', name, 'queue', queue, 'lane', CASE WHEN priority IS NOT NULL THEN lane END, 'tenant', tenant,
      'timeout_s', extract(epoch FROM timeout), 'tags', to_jsonb(tags), 'trace', trace, 'submitted_by', session_user, 'at_most_once', delivery = 'at_most_once',
      'policy', sexton.policy_document(max_attempts, deadline, start_within, lease, progress_within, grace, max_lost),
      'limit', sexton.limit_document(limit_key, limit_running, limit_count, limit_per, limit_burst, limit_ordered),
      -- In the form that the planner writes, so that the same call twice changes nothing.
      'schedule', jsonb_build_object('cron', cron, 'rrule', rrule, 'every', extract(epoch FROM every), 'timezone', nullif(timezone, 'UTC'),
        'jitter', CASE WHEN jitter > interval '0' THEN jsonb_build_object('max', extract(epoch FROM jitter)) END,
        'start_at', replace(to_jsonb(start_at)#>>'{}', '+00:00', 'Z'), 'end_at', replace(to_jsonb(end_at)#>>'{}', '+00:00', 'Z'), 'max_fires', max_fires, 'exclude', to_jsonb(exclude),
        'dst', nullif(jsonb_strip_nulls(jsonb_build_object('gap', nullif(dst_gap, 'after'), 'overlap', nullif(dst_overlap, 'first'))), '{}'),
        'dialect', dialect,
        'anchor_at', CASE WHEN every IS NOT NULL OR rrule !~* 'DTSTART' THEN replace(to_jsonb(anchor_at)#>>'{}', '+00:00', 'Z') END),
      'recurrence', nullif(jsonb_strip_nulls(jsonb_build_object(
        'overlap', CASE WHEN overlap <> 'skip' THEN jsonb_build_object('policy', overlap) END,
        'catch_up', nullif(jsonb_strip_nulls(jsonb_build_object('policy', nullif(catch_up, 'latest'), 'window', extract(epoch FROM catch_up_window))), '{}'),
        'on_resume', nullif(on_resume, 'skip'), 'pause_after', pause_after)), '{}')
    )) || jsonb_build_object('payload', coalesce(payload, '{}')))) AS s);
END
$$;
