-- Whether this worker may take a ready run: it knows the task, the run is not past its latest start or its deadline, and a run that
-- is at-most-once or limited is not prefetched (`ahead`).
-- Promises: PostgreSQL inlines it, so it costs nothing where it is used.
-- Called by: claim_suspects, count_suspects, pick_runs. Locks: none.
CREATE OR REPLACE FUNCTION sexton.is_for(run sexton.runs, tasks text[], ahead boolean, moment timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT run.task = ANY (tasks) AND NOT (ahead AND (run.at_most_once OR run.limit_key IS NOT NULL))
    AND (run.start_by IS NULL OR run.start_by >= moment) AND (run.deadline_at IS NULL OR run.deadline_at > moment)
$$;
