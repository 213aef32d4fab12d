-- Whether a submitted rule is the known one. What the rule counts from (`anchor_at`) is filled in by its first planning unless it was
-- given, so it is compared only if it was given.
-- Called by: same_schedule, revise. Locks: none.
CREATE OR REPLACE FUNCTION sexton.same_rule(known jsonb, given jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT known = CASE WHEN given ? 'anchor_at' THEN given ELSE given || jsonb_strip_nulls(jsonb_build_object('anchor_at', known->'anchor_at')) END
$$;
