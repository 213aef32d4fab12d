-- Trigger on `jobs_recurring`: a new rule has not been read with any time zone data yet, so `tzdata` becomes null.
-- Promises: a planner that writes back the rule it has read also names its release of the data, and keeps it.
-- Called by: triggers. Locks: none beyond the row that is written.
CREATE OR REPLACE FUNCTION sexton.rule_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  NEW.tzdata := NULL;
  RETURN NEW;
END
$$;
