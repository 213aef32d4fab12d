-- How many tokens a bucket holds that was empty at `bucket_at` and has been filling since, up to `burst`.
-- Promises: if the clock was set back, the bucket is full, not closed for an hour.
-- Called by: take_tokens, claim_runs, release_parked, check_submissions, tend_queues, has_takers, store/views/evidence.sql, store/sharing/limits.sql.
-- Locks: none.
CREATE OR REPLACE FUNCTION sexton.tokens(bucket_at timestamptz, rate float8, burst int, moment timestamptz) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN bucket_at = '-infinity' OR bucket_at > moment + interval '1 second' THEN burst
    ELSE floor(least(burst, greatest(0, extract(epoch FROM moment - bucket_at)::float8 * rate) + 1e-6))::int END
$$;
