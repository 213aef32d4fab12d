-- Takes back fires that no scheduler promoted for longer than patience(): such a fire was missed like one that no planner planned, and
-- the catch-up policy decides about both.
-- Promises: looks at `at_most` runs; returns how many jobs are planned again.
-- Called by: store/work/schedules.sql. Locks: the rows of the jobs in id order, with SKIP LOCKED (rule "job row first"); then their runs,
-- with SKIP LOCKED (hold_runs).
CREATE OR REPLACE FUNCTION sexton.recall(partitions smallint[], at_most int, at timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  moment timestamptz := coalesce(at, clock_timestamp());
  late uuid[];
  recalled int;
BEGIN
  SELECT array_agg(DISTINCT r.job_id) INTO late FROM (
    SELECT due.job_id FROM runs due
    WHERE due.state = 'waiting' AND due.overlap > 0 AND due.token = 0 AND due.origin = 'schedule' AND due.partition = ANY (partitions)
      AND due.due_at <= moment - sexton.patience()
    ORDER BY due.due_at LIMIT at_most) r;
  IF late IS NULL THEN
    RETURN 0;
  END IF;
  SELECT array_agg(j.id) INTO late FROM (
    SELECT k.id FROM jobs_recurring k
    WHERE k.id = ANY (late) AND k.over_at IS NULL AND k.paused_at IS NULL ORDER BY k.id FOR UPDATE SKIP LOCKED) j;
  late := sexton.hold_runs(late, '{waiting}');
  UPDATE jobs_recurring j SET plan_cursor_at = u.cursor_at, plan_at = moment, fire_count = greatest(j.fire_count - u.removed_count, 0)
  FROM sexton.unplan(late, moment, '{waiting}', 'missed') u WHERE j.id = u.job_id AND u.removed_count > 0;
  GET DIAGNOSTICS recalled = ROW_COUNT;
  RETURN recalled;
END
$$;
