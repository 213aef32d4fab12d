-- Takes one token for each of these keys, as far as their buckets go.
-- Promises: rule "lock, then decide": buckets are shared by all workers. It passes over buckets that are locked: with `waits` after 50 ms
-- (lock_limits), otherwise at once. A claim that already holds some does not wait for others, because two claims that want them in opposite
-- order would wait for each other. What it does not get is parked, and looked at again.
-- Called by: admit_runs. Locks: rows of `limits` in order of key (rule "lock in id order").
CREATE OR REPLACE FUNCTION sexton.take_tokens(keys text[], moment timestamptz, waits boolean) RETURNS boolean[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  granted boolean[];
  locked text[];
BEGIN
  -- Lock, then look: buckets are shared by all workers.
  locked := ARRAY(SELECT l.key FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE SKIP LOCKED);
  IF waits AND cardinality(locked) < (SELECT count(*) FROM limits l WHERE l.key = ANY (keys)) AND sexton.may_wait() AND sexton.lock_limits(keys) THEN
    locked := ARRAY(SELECT l.key FROM limits l WHERE l.key = ANY (keys) ORDER BY l.key FOR UPDATE SKIP LOCKED);
  END IF;
  WITH wanted AS (
    SELECT w.key, w.ord, row_number() OVER (PARTITION BY w.key ORDER BY w.ord) AS nth FROM unnest(keys) WITH ORDINALITY AS w(key, ord)
  ), buckets AS MATERIALIZED (
    SELECT l.key, sexton.tokens(l.bucket_at, l.count / l.per_s, l.burst, moment) AS tokens
    FROM limits l WHERE l.key = ANY (locked)
  ), drawn AS (
    UPDATE limits l SET bucket_at = sexton.drawn(l.bucket_at, l.count / l.per_s, l.burst, moment, least(b.tokens, w.wanted)::int)
    FROM buckets b JOIN (SELECT key, count(*) AS wanted FROM wanted GROUP BY key) w ON w.key = b.key
    WHERE l.key = b.key AND b.tokens > 0
  )
  SELECT array_agg(coalesce(w.nth <= b.tokens, false) ORDER BY w.ord) INTO granted FROM wanted w LEFT JOIN buckets b ON b.key = w.key;
  RETURN granted;
END
$$;
