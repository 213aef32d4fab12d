-- Rejects what tenants may not submit: more per second, or more waiting, than their limits say (SQLSTATE SX429).
-- Promises: `waiting_count` is never too low. It grows with every submission, and the function counts again when it seems too high,
-- at most once a second. Answers with the tenants whose runs are counted.
-- Called by: submit_jobs. Locks: rows of `tenants` that have a limit, in order of name (rule "lock in id order"), 50 ms at most. If
-- another transaction holds the row longer, the last known numbers decide, and the limit may be exceeded by what that transaction
-- submits. A session that many callers share (sexton.submit_lock_timeout) gets the error: submissions of other tenants do not wait.
CREATE OR REPLACE FUNCTION sexton.check_submissions(names text[], counts int[], moment timestamptz) RETURNS text[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
  given record;
  known tenants;
  submitted int;
  tokens int;
  counted_tenants text[] := '{}';
  is_locked boolean;
BEGIN
  IF current_setting('sexton.submit_lock_timeout', true) <> '' THEN
    PERFORM set_config('lock_timeout', current_setting('sexton.submit_lock_timeout'), true);
  END IF;
  FOR given IN
    SELECT t.name, g.count FROM unnest(names, counts) AS g(name, count) JOIN tenants t ON t.name = g.name
    WHERE t.waiting_max IS NOT NULL OR t.submit_rate IS NOT NULL ORDER BY t.name
  LOOP
    submitted := given.count;
    BEGIN
      SELECT * INTO known FROM tenants t WHERE t.name = given.name FOR UPDATE;
      is_locked := true;
    EXCEPTION WHEN lock_not_available THEN
      IF current_setting('sexton.submit_lock_timeout', true) <> '' THEN
        RAISE;
      END IF;
      SELECT * INTO known FROM tenants t WHERE t.name = given.name;
      is_locked := false;
    END;
    IF known.waiting_max IS NOT NULL THEN
      counted_tenants := counted_tenants || known.name;
      IF known.waiting_count + submitted > known.waiting_max AND (known.counted_at < moment - interval '1 second' OR known.counted_at > moment) THEN
        SELECT count(*), moment INTO known.waiting_count, known.counted_at FROM (
          SELECT FROM runs r WHERE r.tenant = known.name AND r.counted AND r.state <> 'running' ORDER BY r.tenant LIMIT known.waiting_max + 1) w;
        IF is_locked THEN
          UPDATE tenants t SET waiting_count = known.waiting_count, counted_at = moment WHERE t.name = known.name;
        END IF;
      END IF;
      IF known.waiting_count + submitted > known.waiting_max THEN
        RAISE EXCEPTION 'tenant: "%" has % runs waiting, and may have %', known.name, known.waiting_count, known.waiting_max USING ERRCODE = 'SX429',
          DETAIL = json_build_object('limit', 'waiting', 'tenant', known.name, 'max', known.waiting_max, 'retry_after_s', 1),
          HINT = 'Submit again when some have started, or raise waiting_max of the tenant.';
      END IF;
    END IF;
    IF known.submit_rate IS NOT NULL THEN
      tokens := sexton.tokens(known.bucket_at, known.submit_rate, known.submit_burst, moment);
      IF submitted > tokens THEN
        RAISE EXCEPTION 'tenant: "%" may submit % jobs per second, % at once', known.name, known.submit_rate, known.submit_burst USING ERRCODE = 'SX429',
          DETAIL = json_build_object('limit', 'submit_rate', 'tenant', known.name, 'max', known.submit_rate,
                                     'retry_after_s', least(3600, (least(submitted, known.submit_burst) - tokens) / known.submit_rate)),
          HINT = CASE WHEN submitted > known.submit_burst THEN 'Submit fewer at once, or raise submit_burst of the tenant.'
                      ELSE 'Submit more slowly, or raise submit_rate of the tenant.' END;
      END IF;
    END IF;
    IF is_locked THEN
      UPDATE tenants t SET waiting_count = known.waiting_count + submitted,
        bucket_at = CASE WHEN known.submit_rate IS NOT NULL
          THEN sexton.drawn(known.bucket_at, known.submit_rate, known.submit_burst, moment, submitted) ELSE known.bucket_at END
      WHERE t.name = known.name;
    END IF;
  END LOOP;
  RETURN counted_tenants;
END
$$;
