-- Rejects an argument that is negative or longer than ten years; null is accepted.
-- Promises: SQLSTATE 22023, and a message that names the argument and its value. The limits are those of the SDK (domain/duration.py).
-- Called by: policy_document, submit, submit_schedule. Locks: none.
CREATE OR REPLACE FUNCTION sexton.check_span(argument text, value interval) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF extract(epoch FROM value) < 0 THEN
    RAISE EXCEPTION '%: % is negative', argument, value USING ERRCODE = '22023', HINT = 'Leave it out for the default.';
  END IF;
  IF extract(epoch FROM value) > 3660 * 86400 THEN
    RAISE EXCEPTION '%: % is longer than ten years', argument, value USING ERRCODE = '22023';
  END IF;
END
$$;
