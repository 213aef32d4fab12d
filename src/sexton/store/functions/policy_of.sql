-- The policy that a run lives by.
-- Promises: that of the job version it belongs to, whatever becomes of the job; null if neither has one.
-- Called by: callback_ends_at, store/work/dead_letters.sql, store/work/runs.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.policy_of(wanted_job uuid, wanted_version int) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path = sexton, pg_temp AS $$
DECLARE
  found_policy jsonb;
BEGIN
  SELECT v.policy INTO found_policy FROM job_versions v WHERE v.job_id = wanted_job AND v.version = wanted_version LIMIT 1;
  IF NOT FOUND THEN
    SELECT j.policy INTO found_policy FROM jobs j WHERE j.id = wanted_job LIMIT 1;
  END IF;
  RETURN found_policy;
END
$$;
