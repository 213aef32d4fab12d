-- The limit key of a run: the key in the policy of its job, filled in from its payload; null without a limit. See render_key.
-- Called by: submit_jobs, revise, make_limits_of_schedule, store/work/dead_letters.sql, backfill.sql, editing.sql, schedules.sql.
-- Locks: none.
CREATE OR REPLACE FUNCTION sexton.limit_key_of(policy jsonb, payload jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN policy ? 'limit' THEN sexton.render_key(policy->'limit'->>'key', payload) END
$$;
