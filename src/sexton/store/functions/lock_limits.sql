-- Locks limits, in order of key, and waits 50 ms at most for another session; returns whether it has all of them. If not, it has none.
-- Promises: rule "never wait inside a batch". Claims and reports hold a limit for milliseconds, and to wait for those is better than to
-- leave a slot empty until the next pass. A transaction that was left open is not waited for. A wait that failed is the last of the transaction:
-- ask may_wait first.
-- Called by: release_parked, take_tokens. Locks: rows of `limits` in order of key (rule "lock in id order").
CREATE OR REPLACE FUNCTION sexton.lock_limits(keys text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
  PERFORM FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE;
  RETURN true;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
  PERFORM sexton.stop_waiting();
  RETURN false;
END
$$;
