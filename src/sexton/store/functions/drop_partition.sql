-- Detaches a partition and drops it.
-- Promises: the tags and versions of jobs go with their jobs.
-- Called by: store/work/retention.sql. Locks: ACCESS EXCLUSIVE on parent and partition. It waits 1 s at most and then fails; the janitor
-- tries again at its next pass.
CREATE OR REPLACE FUNCTION sexton.drop_partition(parent text, child text) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
  EXECUTE format('ALTER TABLE sexton.%I DETACH PARTITION sexton.%I', parent, child);
  EXECUTE format('DROP TABLE sexton.%I', child);
  IF parent = 'jobs' THEN
    PERFORM drop_partition('job_tags', replace(child, 'jobs_', 'job_tags_'));
    PERFORM drop_partition('job_versions', replace(child, 'jobs_', 'job_versions_'));
  END IF;
END
$$;
