-- Trigger on `runs`, after a run with an overlap policy has ended: wakes a promoter if a run of the same job is blocked.
-- Promises: only the fast path of rule "look again every pass"; the promoter finds the run at its next pass anyway.
-- Called by: triggers. Locks: none.
CREATE OR REPLACE FUNCTION sexton.release_blocked() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM runs r WHERE r.job_id = OLD.job_id AND r.state = 'blocked') THEN
    PERFORM sexton.announce('{}', true);
  END IF;
  RETURN NULL;
END
$$;
