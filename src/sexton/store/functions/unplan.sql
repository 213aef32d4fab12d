-- Removes the runs of these jobs that have not started, and says from where to plan again.
-- Promises: rule "plan by compare-and-set". The new cursor is not before the last fire that was started or decided about (jitter may have
-- let it start ahead of its nominal time), not before the last change of the rule, and not after the first that was removed. A run that is removed and lies before the cursor
-- (it waited its turn while later ones were skipped) is not planned again: history records it. Several statements: a claim that the
-- first had to wait for is seen by the next.
-- Called by: recall_late, revise, store/work/schedules.sql, store/work/zones.sql. Locks: call it with the rows of the jobs locked
-- (rule "job row first"); it then locks their runs.
CREATE OR REPLACE FUNCTION sexton.unplan(job_ids uuid[], moment timestamptz, states text[] DEFAULT '{waiting,ready,parked,blocked}', told text DEFAULT 'skipped')
RETURNS TABLE (job_id uuid, cursor_at timestamptz, removed_count int, begun_count int)
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  taken_back jsonb;
  cursors jsonb;
BEGIN
  WITH removed AS (
    DELETE FROM runs r
    WHERE r.job_id = ANY (job_ids) AND r.origin = 'schedule' AND r.token = 0 AND r.state = ANY (states)
    RETURNING r.id, r.job_id, r.fire_at, r.due_at, r.job_version, r.lane, r.queue, r.tenant, r.task
  )
  SELECT coalesce(jsonb_agg(removed), '[]') INTO taken_back FROM removed;

  SELECT jsonb_agg(c) INTO cursors FROM (
    SELECT j.id AS job_id,
      greatest(
        least(t.first_at - interval '1 microsecond', j.plan_cursor_at, moment),
        (SELECT max(r.fire_at) FROM runs r WHERE r.job_id = j.id AND r.origin = 'schedule'),
        -- From here on the present rule plans. Fires of an earlier rule are not its fires: they are not planned again.
        (SELECT max(v.fire_at) FROM job_versions v WHERE v.job_id = j.id AND NOT sexton.same_rule(v.schedule, j.schedule)),
        -- A gap is one row, for all of its fires. No jitter is longer than half an hour.
        (SELECT max(CASE WHEN e.status IN ('missed', 'paused') THEN coalesce((e.result->>'last')::timestamptz, e.fire_at) ELSE e.fire_at END)
         FROM executions e
         WHERE e.job_id = j.id AND e.id >= sexton.uuid7_floor(least(moment, t.first_at) - interval '1 hour') AND e.origin = 'schedule')) AS cursor_at,
      coalesce(t.removed_count, 0) AS removed_count, (SELECT count(*)::int FROM runs r WHERE r.job_id = j.id AND r.token > 0) AS begun_count
    FROM jobs_recurring j LEFT JOIN (
      SELECT r.job_id, min(r.fire_at) AS first_at, count(*)::int AS removed_count
      FROM jsonb_to_recordset(taken_back) AS r (job_id uuid, fire_at timestamptz) GROUP BY r.job_id
    ) t ON t.job_id = j.id
    WHERE j.id = ANY (job_ids)) c;

  IF taken_back <> '[]' THEN
    PERFORM sexton.ensure_partitions(moment);
    INSERT INTO executions (id, job_id, run_id, fire_at, due_at, ended_at, token, job_version, seq, attempt, lane, origin, status, queue, tenant,
                            task, reason)
    SELECT sexton.uuid7((extract(epoch FROM moment) * 1000000)::bigint + row_number() OVER (ORDER BY r.fire_at)), r.job_id, r.id, r.fire_at, r.due_at,
      moment, 0, r.job_version, 0, 0, r.lane, 'schedule', told, r.queue, r.tenant, r.task, 'taken back before it began, when a later fire was decided'
    FROM jsonb_to_recordset(taken_back) AS r (id uuid, job_id uuid, fire_at timestamptz, due_at timestamptz, job_version int, lane smallint,
      queue text, tenant text, task text)
    JOIN jsonb_to_recordset(cursors) AS c (job_id uuid, cursor_at timestamptz) ON c.job_id = r.job_id AND r.fire_at <= c.cursor_at;
  END IF;
  RETURN QUERY SELECT c.* FROM jsonb_to_recordset(coalesce(cursors, '[]')) AS c (job_id uuid, cursor_at timestamptz, removed_count int, begun_count int);
END
$$;
