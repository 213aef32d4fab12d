-- Rejects an argument that is not between 1 and `most`; null is accepted.
-- Promises: SQLSTATE 22023, and a message that names the argument, its value and the bounds.
-- Called by: limit_document, policy_document, submit_schedule. Locks: none.
CREATE OR REPLACE FUNCTION sexton.check_count(argument text, value int, most int) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF value NOT BETWEEN 1 AND most THEN
    RAISE EXCEPTION '%: % must be between 1 and %', argument, value, most USING ERRCODE = '22023';
  END IF;
END
$$;
