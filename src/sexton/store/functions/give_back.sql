-- Frees slots that these runs hold.
-- Promises: each slot is found by the primary key, whatever the plan was made on, and only if this run holds it.
-- Called by: admit_runs. Locks: the rows of `slots`; no other session writes a slot that is held.
CREATE OR REPLACE FUNCTION sexton.give_back(slot_keys text[], numbers int[], run_ids uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
BEGIN
  UPDATE slots s SET run_id = NULL WHERE s.ctid = ANY (ARRAY(
    SELECT o.ctid FROM unnest(slot_keys, numbers, run_ids) AS g(key, n, run_id)
    CROSS JOIN LATERAL (SELECT h.ctid FROM slots h WHERE h.key = g.key AND h.n = g.n AND h.run_id = g.run_id LIMIT 1) o));
END
$$;
