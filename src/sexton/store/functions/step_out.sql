-- Trigger on `runs`: frees the slot that the first in line of an ordered key already holds before its claim.
-- Promises: if that run steps out of line (a pause, an edit, its end, or a key that became ordered while several ran), the slot is free for
-- the next, and a promoter is woken.
-- Called by: triggers. Locks: the row of `slots`.
CREATE OR REPLACE FUNCTION sexton.step_out() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  UPDATE slots s SET run_id = NULL WHERE s.key = OLD.limit_key AND s.n = OLD.slot AND s.run_id = OLD.id;
  PERFORM sexton.announce('{}', true);
  IF TG_OP = 'DELETE' THEN
    RETURN NULL;
  END IF;
  NEW.slot := NULL;
  RETURN NEW;
END
$$;
