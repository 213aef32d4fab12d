-- phase: expand
-- transactional: yes
-- locks: the functions submit and submit_schedule, instant
-- undo: yes

-- sexton.submit and sexton.submit_schedule get more arguments. A function cannot get a new argument in place, and two of one
-- name with defaults are ambiguous, so one transaction replaces the old one with the new one. Roles keep their right to call
-- it. The body follows with the functions of this release. No service calls either of them, so services of the last release
-- continue.
DO $step$
DECLARE
  old regprocedure;
  new regprocedure;
  holder record;
BEGIN
  FOR old IN
    SELECT p FROM unnest(ARRAY[
      to_regprocedure('sexton.submit(text, jsonb, timestamptz, interval, text, text, text, text, text, interval, interval, text[], text[], interval, text)'),
      to_regprocedure('sexton.submit_schedule(text, jsonb, text, text, text, interval, text, interval, timestamptz, timestamptz, int, text[], text, text, interval, text, text, text, interval, text[], text)')]) AS p
    WHERE p IS NOT NULL
  LOOP
    IF old::text LIKE 'sexton.submit(%' THEN
    CREATE FUNCTION sexton.submit(
      task text, payload jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, queue text DEFAULT NULL,
      priority text DEFAULT NULL, tenant text DEFAULT NULL, name text DEFAULT NULL, key text DEFAULT NULL,
      key_ttl interval DEFAULT NULL, timeout interval DEFAULT NULL, tags text[] DEFAULT NULL, unique_by text[] DEFAULT NULL,
      unique_for interval DEFAULT NULL, trace text DEFAULT NULL, deadline interval DEFAULT NULL, start_within interval DEFAULT NULL,
      lease interval DEFAULT NULL, progress_within interval DEFAULT NULL, grace interval DEFAULT NULL, max_lost int DEFAULT NULL,
      max_attempts int DEFAULT NULL, delivery text DEFAULT NULL, limit_key text DEFAULT NULL, limit_running int DEFAULT NULL,
      limit_count int DEFAULT NULL, limit_per interval DEFAULT NULL, limit_burst int DEFAULT NULL, limit_ordered boolean DEFAULT NULL)
      RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid';
    ELSE
    CREATE FUNCTION sexton.submit_schedule(
      task text, payload jsonb DEFAULT '{}', name text DEFAULT NULL, cron text DEFAULT NULL, rrule text DEFAULT NULL, every interval DEFAULT NULL,
      timezone text DEFAULT NULL, jitter interval DEFAULT NULL, start_at timestamptz DEFAULT NULL, end_at timestamptz DEFAULT NULL,
      max_fires int DEFAULT NULL, exclude text[] DEFAULT NULL, overlap text DEFAULT NULL, catch_up text DEFAULT NULL, catch_up_window interval DEFAULT NULL,
      queue text DEFAULT NULL, priority text DEFAULT NULL, tenant text DEFAULT NULL, timeout interval DEFAULT NULL, tags text[] DEFAULT NULL,
      trace text DEFAULT NULL, deadline interval DEFAULT NULL, start_within interval DEFAULT NULL,
      lease interval DEFAULT NULL, progress_within interval DEFAULT NULL, grace interval DEFAULT NULL, max_lost int DEFAULT NULL,
      max_attempts int DEFAULT NULL, delivery text DEFAULT NULL, limit_key text DEFAULT NULL, limit_running int DEFAULT NULL,
      limit_count int DEFAULT NULL, limit_per interval DEFAULT NULL, limit_burst int DEFAULT NULL, limit_ordered boolean DEFAULT NULL,
      on_resume text DEFAULT NULL, pause_after int DEFAULT NULL)
      RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid';
    END IF;
    SELECT p.oid INTO new FROM pg_proc p JOIN pg_proc o ON o.oid = old AND p.pronamespace = o.pronamespace AND p.proname = o.proname
    WHERE p.oid <> o.oid;
    FOR holder IN
      SELECT a.grantee, a.is_grantable FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
      WHERE p.oid = old AND a.grantee NOT IN (0, p.proowner)
    LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I%s', new, holder.grantee::regrole,
                     CASE WHEN holder.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    EXECUTE format('DROP FUNCTION %s', old);
  END LOOP;
END
$step$;
