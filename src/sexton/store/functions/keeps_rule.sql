-- Whether a recurring job keeps its rule, and with it its plan, when this document replaces its definition.
-- Promises: as same_rule. A rule of the last release into which only the minute and second are written stays the same. Another name is another
-- rule, because it is another seed of jitter and `H`.
-- Called by: lock_named, revise, store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.keeps_rule(known sexton.jobs_recurring, given sexton.schedule_document) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = sexton, pg_temp AS $$
  SELECT known.name IS NOT DISTINCT FROM given.name AND (
    sexton.same_rule(known.schedule, given.schedule)
    OR sexton.same_rule(jsonb_strip_nulls(jsonb_build_object('anchor_at', known.schedule->'anchor_at')) || given.schedule, known.schedule))
$$;
