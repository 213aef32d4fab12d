-- The limit key of a run: the key in the policy of its job, filled in from its payload. See render_key.
-- Promises: null without a limit; otherwise a key that render_key accepts, or its error.
-- Called by: make_limits_of_schedule, revise, submit_jobs, store/work/backfills.sql, store/work/dead_letters.sql, store/work/edits.sql,
-- store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.limit_key_of(policy jsonb, payload jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN policy ? 'limit' THEN sexton.render_key(policy->'limit'->>'key', payload) END
$$;
