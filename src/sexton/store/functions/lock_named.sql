-- Locks the recurring jobs whose name one of these documents has, and says which of them get another rule.
-- Promises: the caller decides about the fires that are due by the old rule before it writes the documents (rule "job row first").
-- Called by: store/work/schedules.sql. Locks: the rows of the jobs, in id order; lock_timeout as in submit_schedules.
CREATE OR REPLACE FUNCTION sexton.lock_named(schedules jsonb) RETURNS TABLE (id uuid, keeps_rule boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
  wait text;
BEGIN
  wait := coalesce(nullif(current_setting('sexton.schedule_lock_timeout', true), ''), nullif(current_setting('sexton.submit_wait', true), ''));
  IF wait IS NOT NULL THEN  -- until the end of this function, because it has a SET clause
    PERFORM set_config('lock_timeout', wait, true);
  END IF;
  RETURN QUERY WITH known AS MATERIALIZED (
    SELECT j.id, g AS given FROM sexton.read_schedules(schedules) g CROSS JOIN LATERAL (
      SELECT o.id FROM jobs_recurring o WHERE o.tenant = g.tenant AND o.name = g.name AND o.over_at IS NULL LIMIT 1) j
  ), locked AS MATERIALIZED (
    SELECT j.id, j AS job FROM jobs_recurring j WHERE j.id = ANY (ARRAY(SELECT known.id FROM known)) ORDER BY j.id FOR UPDATE
  )
  SELECT l.id, bool_and(sexton.keeps_rule(l.job, k.given)) FROM locked l JOIN known k ON k.id = l.id GROUP BY l.id ORDER BY l.id;
END
$$;
