-- The policy document of the options that a caller of SQL names; null where it names none.
-- Promises: an option that breaks a rule is rejected with SQLSTATE 22023 and a message that names the argument.
-- Called by: submit, submit_schedule. Locks: none.
CREATE OR REPLACE FUNCTION sexton.policy_document(
  max_attempts int, deadline interval, start_within interval, lease interval, progress_within interval, grace interval, max_lost int)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE SET search_path = sexton, pg_temp AS $$
BEGIN
  PERFORM sexton.check_span('deadline', deadline), sexton.check_span('start_within', start_within), sexton.check_span('lease', lease),
    sexton.check_span('progress_within', progress_within), sexton.check_span('grace', grace);
  PERFORM sexton.check_count('max_attempts', max_attempts, 1000);
  PERFORM sexton.check_count('max_lost', max_lost, 1000);
  RETURN nullif(jsonb_strip_nulls(jsonb_build_object(
    'retry', CASE WHEN max_attempts IS NOT NULL THEN jsonb_build_object('max_attempts', max_attempts) END,
    'deadline_s', extract(epoch FROM deadline), 'start_within_s', extract(epoch FROM start_within), 'lease_s', extract(epoch FROM lease),
    'progress_within_s', extract(epoch FROM progress_within), 'grace_s', extract(epoch FROM grace), 'max_lost', max_lost)), '{}');
END
$$;
