-- Takes back fires that no scheduler promoted for longer than patience(): such a fire was missed like one that no planner planned, and
-- the catch-up policy decides about both.
-- Promises: looks at `at_most` runs of jobs that are not in `without`; answers with each job of these runs. `is_left`: nothing was changed,
-- because another session has locked the job or one of its runs. Such jobs must not hide those behind them: ask again without them
-- (rule "never wait inside a batch").
-- Called by: recall, store/work/schedules.sql. Locks: the rows of the jobs in id order, with SKIP LOCKED (rule "job row first"); then their
-- runs, with SKIP LOCKED (hold_runs).
CREATE OR REPLACE FUNCTION sexton.recall_late(partitions smallint[], at_most int, without uuid[], at timestamptz DEFAULT NULL)
RETURNS TABLE (job_id uuid, is_left boolean)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  late uuid[];
  held uuid[];
  recalled uuid[];
BEGIN
  SELECT array_agg(DISTINCT r.job_id) INTO late FROM (
    SELECT due.job_id FROM runs due
    WHERE due.state = 'waiting' AND due.overlap > 0 AND due.token = 0 AND due.origin = 'schedule' AND due.partition = ANY (partitions)
      AND due.due_at <= moment - sexton.patience() AND due.job_id <> ALL (without)
    ORDER BY due.due_at LIMIT at_most) r;
  IF late IS NULL THEN
    RETURN;
  END IF;
  SELECT array_agg(j.id) INTO held FROM (
    SELECT k.id FROM jobs_recurring k
    WHERE k.id = ANY (late) AND k.over_at IS NULL AND k.paused_at IS NULL ORDER BY k.id FOR UPDATE SKIP LOCKED) j;
  held := sexton.hold_runs(held, '{waiting}');
  WITH changed AS (
    UPDATE jobs_recurring j SET plan_cursor_at = u.cursor_at, plan_at = moment, fire_count = greatest(j.fire_count - u.removed_count, 0)
    FROM sexton.unplan(held, moment, '{waiting}', 'missed') u WHERE j.id = u.job_id AND u.removed_count > 0
    RETURNING j.id
  )
  SELECT array_agg(c.id) INTO recalled FROM changed c;
  RETURN QUERY SELECT l, (l = ANY (recalled)) IS NOT TRUE FROM unnest(late) AS l;
END
$$;
