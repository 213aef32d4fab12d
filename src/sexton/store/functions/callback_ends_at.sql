-- The instant at which the sweeper ends a run that was handed over to its target and has not called back.
-- Promises: the earliest of its timeout or deadline (one day after the claim if it has neither), of the next progress report if
-- its policy demands one, and of 10 s after a cancel request, because only the target itself could stop the run. The policy is that
-- of the job version which the run belongs to.
-- Called by: store/work/callbacks.sql, store/work/runs.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.callback_ends_at(
  claimed_at timestamptz, timeout_s real, deadline_at timestamptz, cancel_requested_at timestamptz, job uuid, version int, moment timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT least(
    coalesce(least(claimed_at + make_interval(secs => timeout_s), deadline_at), claimed_at + interval '1 day'),
    moment + make_interval(secs => (sexton.policy_of(job, version)->>'progress_within_s')::float8),
    cancel_requested_at + interval '10 seconds')
$$;
