-- How many of `count` turns fall to one tenant: the rest of the round that was begun, then whole rounds, then the beginning of one
-- more. `before` and `first_before` are the turns of the tenants ahead of it, in a whole round and in the round that was begun.
-- Promises: pure arithmetic, equal to domain/fairness.py.
-- Called by: pick_runs. Locks: none.
CREATE OR REPLACE FUNCTION sexton.dealt(count int, weight int, had int, before bigint, first_before bigint, total bigint, had_total bigint) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (greatest(0, least(count - first_before, weight - had))
    + greatest(0, count - (total - had_total)) / total * weight
    + greatest(0, least(greatest(0, count - (total - had_total)) % total - before, weight)))::int
$$;
