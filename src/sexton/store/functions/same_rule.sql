-- Whether a submitted rule is the known one.
-- Promises: what a planner fills in is no difference. What the rule counts from (`anchor_at`) is compared only if it was given; `strict` is
-- `cron` once the line was read; and an rrule that a service of the last release gives without the minute and second that this one writes
-- into it (`rrule_text.completed`) is the same rule too.
-- Called by: keeps_rule, revise, same_schedule, unplan. Locks: none.
CREATE OR REPLACE FUNCTION sexton.same_rule(known jsonb, given jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT (known - 'dialect' = g.schedule - 'dialect'
      AND replace(known->>'dialect', 'strict', 'cron') IS NOT DISTINCT FROM replace(g.schedule->>'dialect', 'strict', 'cron')) OR (
    known->>'rrule' LIKE '%;BYSECOND=0%' AND given->>'rrule' !~* 'DTSTART|BYSECOND' AND given->>'rrule' ~* 'BYHOUR|BYMINUTE'
    AND known - 'rrule' = g.schedule - 'rrule'
    AND replace(replace(known->>'rrule', ';BYMINUTE=0', ''), ';BYSECOND=0', '') = replace(given->>'rrule', ';BYMINUTE=0', '')) IS TRUE
  FROM (SELECT CASE WHEN given ? 'anchor_at' THEN given
                    ELSE given || jsonb_strip_nulls(jsonb_build_object('anchor_at', known->'anchor_at')) END AS schedule) g
$$;
