-- Frees slots whose run does not hold them; returns how many.
-- Promises: normally there are none, unless a person changed runs by hand or some way of ending a run forgot its slot.
-- Rule "lock, then decide": a slot that was taken since the first look belongs to a run that only a later look can see.
-- Called by: store/sharing/parked_runs.sql. Locks: the suspect rows of `slots`, with SKIP LOCKED.
CREATE OR REPLACE FUNCTION sexton.mend_slots() RETURNS int LANGUAGE plpgsql SET search_path = sexton, pg_temp
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  suspects tid[];
  mended int;
BEGIN
  SELECT array_agg(l.place) INTO suspects FROM (
    SELECT s.ctid AS place FROM slots s WHERE s.run_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM runs r WHERE r.id = s.run_id AND (
        (s.key = r.limit_key AND r.slot = s.n) OR (s.key = '@tenant:' || r.tenant AND r.tenant_slot = s.n)))
    ORDER BY s.key, s.n FOR UPDATE SKIP LOCKED) l;
  IF suspects IS NULL THEN
    RETURN 0;
  END IF;
  UPDATE slots s SET run_id = NULL WHERE s.ctid = ANY (suspects) AND s.run_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM runs r WHERE r.id = s.run_id AND (
      (s.key = r.limit_key AND r.slot = s.n) OR (s.key = '@tenant:' || r.tenant AND r.tenant_slot = s.n)));
  GET DIAGNOSTICS mended = ROW_COUNT;
  RETURN mended;
END
$$;
