-- The limit of the arguments that a caller of SQL names; null where it names none.
-- Promises: an argument that breaks a rule is rejected with SQLSTATE 22023 and a message that names it. The key is checked where it is
-- filled in (render_key), and whether it exists where the job is written (make_limits).
-- Called by: submit, submit_schedule. Locks: none.
CREATE OR REPLACE FUNCTION sexton.limit_document(
  limit_key text, limit_running int, limit_count int, limit_per interval, limit_burst int, limit_ordered boolean)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path = sexton, pg_temp AS $$
BEGIN
  IF limit_key IS NULL THEN
    IF num_nonnulls(limit_running, limit_count, limit_per, limit_burst, limit_ordered) > 0 THEN
      RAISE EXCEPTION 'limit_key: is required with the other limit arguments' USING ERRCODE = '22023';
    END IF;
    RETURN NULL;
  END IF;
  PERFORM sexton.check_count('limit_running', limit_running, 10000);
  IF limit_ordered AND limit_running > 1 THEN
    RAISE EXCEPTION 'limit_running: an ordered limit allows 1 run at once, not %', limit_running USING ERRCODE = '22023', HINT = 'Leave it out, or give 1.';
  END IF;
  IF limit_burst IS NOT NULL AND limit_count IS NULL THEN
    RAISE EXCEPTION 'limit_burst: needs limit_count and limit_per' USING ERRCODE = '22023';
  END IF;
  IF (limit_count IS NULL) <> (limit_per IS NULL) THEN
    RAISE EXCEPTION 'limit_count, limit_per: each needs the other' USING ERRCODE = '22023', HINT = 'For example limit_count => 10, limit_per => ''1 s''.';
  END IF;
  PERFORM sexton.check_count('limit_count', limit_count, 1000000);
  PERFORM sexton.check_count('limit_burst', limit_burst, 1000000);
  IF limit_per NOT BETWEEN interval '1 millisecond' AND interval '1 day' THEN
    RAISE EXCEPTION 'limit_per: % must be between one millisecond and one day', limit_per USING ERRCODE = '22023';
  END IF;
  RETURN jsonb_strip_nulls(jsonb_build_object('key', limit_key, 'running', CASE WHEN limit_ordered THEN 1 ELSE limit_running END,
    'count', limit_count, 'per_s', extract(epoch FROM limit_per), 'burst', limit_burst, 'ordered', CASE WHEN limit_ordered THEN true END));
END
$$;
