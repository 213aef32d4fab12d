-- Locks a queue and waits 50 ms at most for another session; returns whether it has it.
-- Promises: as lock_limits: other claims are waited for, a transaction that was left open is not. Ask may_wait first.
-- Called by: claim_runs. Locks: the row of `queues`.
CREATE OR REPLACE FUNCTION sexton.lock_queue(wanted text) RETURNS boolean
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
  PERFORM FROM queues q WHERE q.name = wanted FOR UPDATE;
  RETURN FOUND;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  PERFORM sexton.stop_waiting();
  RETURN false;
END
$$;
