-- The session of the caller: its server process, and when that started, because process ids are used again. Arguments: the address and port
-- that the client has at its end (both null: a Unix socket).
-- Promises: null if the server does not see these. Then a proxy is in between, which may end the session without telling the client.
-- Called by: store/fleet/workers.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.own_session(address inet, port int) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT a.pid || '/' || extract(epoch FROM a.backend_start) FROM pg_stat_get_activity(pg_backend_pid()) a
  WHERE host(inet_client_addr()) IS NOT DISTINCT FROM host(address) AND inet_client_port() IS NOT DISTINCT FROM port
$$;
