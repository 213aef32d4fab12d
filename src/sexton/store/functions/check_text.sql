-- Rejects an argument that is empty or longer than 200 characters; null is accepted.
-- Promises: SQLSTATE 22023, and a message that names the argument. The limits are those of the SDK (domain/job.py).
-- Called by: check_tags, submit, submit_schedule. Locks: none.
CREATE OR REPLACE FUNCTION sexton.check_text(argument text, value text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF value = '' THEN
    RAISE EXCEPTION '%: give a non-empty text', argument USING ERRCODE = '22023', HINT = 'Leave it out for the default.';
  END IF;
  IF char_length(value) > 200 THEN
    RAISE EXCEPTION '%: % characters, the limit is 200', argument, char_length(value) USING ERRCODE = '22023';
  END IF;
END
$$;
