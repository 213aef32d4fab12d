-- Sends the notifications that wake workers (channel `sexton_ready`, one per queue) and schedulers (channel `sexton_due`).
-- Promises: a notification is a hint and never a fact; everything also works by polling. `due_soon` is for runs that a sleep of
-- two seconds would miss. `ALTER DATABASE … SET sexton.notify = off` turns notifications off.
-- Called by: finish_runs, hold_back, release_blocked, step_out, submit_jobs, store/work/runs.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.announce(ready_queues text[], due_soon boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('sexton.notify', true) = 'off' THEN
    RETURN;
  END IF;
  PERFORM pg_notify('sexton_ready', queue) FROM unnest(ready_queues) AS queue;
  IF due_soon THEN
    PERFORM pg_notify('sexton_due', '');
  END IF;
END
$$;
