-- Trigger on `runs`: parks a run that has a limit key when it becomes ready.
-- Promises: every way to become ready leads through here, so no caller can forget the limit. Only release_parked makes such a run ready,
-- and the claim then asks for the slot. Parking a run wakes a promoter.
-- Called by: triggers. Locks: none beyond the row that is written.
CREATE OR REPLACE FUNCTION sexton.hold_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' OR OLD.state <> 'parked' THEN
    NEW.state := 'parked';
    PERFORM sexton.announce('{}', true);
  END IF;
  RETURN NEW;
END
$$;
