-- Trigger on `jobs_recurring`: creates the limit that a schedule names.
-- Promises: the limit begins at the moment of the statement that wrote the schedule. A limit that exists keeps its numbers.
-- Called by: triggers. Locks: those of make_limits.
CREATE OR REPLACE FUNCTION sexton.make_limits_of_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sexton.make_limits(
    jsonb_build_array(jsonb_build_object('key', sexton.limit_key_of(NEW.policy, NEW.payload), 'limit', NEW.policy->'limit')),
    coalesce((SELECT v.replaced_at FROM sexton.job_versions v WHERE v.job_id = NEW.id AND v.version = NEW.version - 1), NEW.submitted_at));
  RETURN NULL;
END
$$;
