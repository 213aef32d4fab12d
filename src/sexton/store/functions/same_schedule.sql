-- Whether a submitted schedule equals the recurring job as it is.
-- Promises: if true, no new version is needed: rule, task, queue, lane, payload, delivery, timeout, policies and tags are the same.
-- Called by: submit_schedules, store/work/declared.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.same_schedule(known sexton.jobs_recurring, given sexton.schedule_document) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = sexton, pg_temp AS $$
  SELECT (known.task, known.queue, known.lane, known.payload, known.at_most_once) = (given.task, given.queue, given.lane, given.payload, given.at_most_once)
    AND sexton.same_rule(known.schedule, given.schedule)
    AND known.timeout_s IS NOT DISTINCT FROM given.timeout_s AND known.policy IS NOT DISTINCT FROM given.policy
    AND known.tags IS NOT DISTINCT FROM given.tags AND known.recurrence IS NOT DISTINCT FROM given.recurrence
$$;
