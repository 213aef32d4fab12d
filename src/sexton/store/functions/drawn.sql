-- The new `bucket_at` of a token bucket after `taken` tokens were taken at `moment`. See tokens.
-- Promises: pure arithmetic; a bucket whose time lies in the future (the clock was set back) is treated as full.
-- Called by: check_submissions, claim_runs, claim_suspects, take_tokens. Locks: none.
CREATE OR REPLACE FUNCTION sexton.drawn(bucket_at timestamptz, rate float8, burst int, moment timestamptz, taken int) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN bucket_at > moment + interval '1 second' THEN moment - make_interval(secs => burst / rate)
    ELSE greatest(least(bucket_at, moment), moment - make_interval(secs => burst / rate)) END + make_interval(secs => taken / rate)
$$;
