-- Whether a session that `own_session` named has ended.
-- Promises: never true for a session that lives. Every role sees which server processes exist, but only some see when one of another role
-- started: a role that does not see it takes the session for alive, although another process may have got the same id. A null has not ended.
-- Called by: store/fleet/workers.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.has_ended(session text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT session IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_stat_get_activity(split_part(session, '/', 1)::int) a
    WHERE a.backend_start IS NULL OR extract(epoch FROM a.backend_start)::text = split_part(session, '/', 2))
$$;
