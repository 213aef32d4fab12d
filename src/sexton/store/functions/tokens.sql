-- How many tokens a bucket holds that was empty at `bucket_at` and has been filling since, up to `burst`.
-- Promises: if the clock was set back, the bucket is full, not closed for an hour.
-- Called by: check_submissions, claim_runs, claim_suspects, has_takers, release_parked, take_tokens, tend_queues, store/sharing/limits.sql,
-- store/views/evidence.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.tokens(bucket_at timestamptz, rate float8, burst int, moment timestamptz) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN bucket_at = '-infinity' OR bucket_at > moment + interval '1 second' THEN burst
    ELSE floor(least(burst, greatest(0, extract(epoch FROM moment - bucket_at)::float8 * rate) + 1e-6))::int END
$$;
