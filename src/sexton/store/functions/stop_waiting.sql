-- After a wait that failed: this transaction waits for no further limit, paced queue or delivery.
-- Promises: may_wait is false until the transaction ends, or until an error takes its subtransaction back.
-- Called by: lock_limits, lock_queue, tell_subscribers. Locks: none.
CREATE OR REPLACE FUNCTION sexton.stop_waiting() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('sexton.has_waited', 'on', true);
END
$$;
