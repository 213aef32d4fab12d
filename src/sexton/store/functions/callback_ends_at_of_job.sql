-- As callback_ends_at, by the newest policy of the job instead of the policy of the run's version.
-- Promises: nothing to this release; a database of 413f5aa has it, and it stays until the release that removes it.
-- Called by: no code. Locks: none.
-- superseded by: callback_ends_at; removed in: 0.2.0
-- signature: sexton.callback_ends_at(timestamptz, real, timestamptz, timestamptz, uuid, timestamptz)
CREATE OR REPLACE FUNCTION sexton.callback_ends_at(
  claimed_at timestamptz, timeout_s real, deadline_at timestamptz, cancel_requested_at timestamptz, job uuid, moment timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT least(
    coalesce(least(claimed_at + make_interval(secs => timeout_s), deadline_at), claimed_at + interval '1 day'),
    moment + make_interval(secs => (SELECT (j.policy->>'progress_within_s')::float8 FROM sexton.jobs j WHERE j.id = job LIMIT 1)),
    cancel_requested_at + interval '10 seconds')
$$;
