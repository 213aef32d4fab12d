-- Whether this transaction may still wait 50 ms for a limit, a paced queue or a delivery that another session has locked.
-- Promises: rule "never wait inside a batch". Such a wait that failed is the last of its transaction (stop_waiting), however many rows,
-- reports or queues it goes through; what it then finds locked is left for the next pass.
-- Called by: claim_runs, release_parked, take_tokens, tell_subscribers. Locks: none.
CREATE OR REPLACE FUNCTION sexton.may_wait() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT current_setting('sexton.has_waited', true) IS DISTINCT FROM 'on'
$$;
