-- Creates the limits that jobs bring along. `named` is an array of {key, limit}.
-- Promises: the numbers in a job create the limit of its key only if there is none; of several with one key the first counts. A key
-- without numbers must already exist (SQLSTATE 22023).
-- Called by: make_limits_of_schedule, submit_jobs, store/work/edits.sql. Locks: rows of `limits` that it inserts, in order of key.
CREATE OR REPLACE FUNCTION sexton.make_limits(named jsonb, moment timestamptz, maker text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  missing text;
BEGIN
  INSERT INTO limits (key, running, count, per_s, burst, ordered, made_by, updated_at)
  SELECT DISTINCT ON (n.key) n.key, coalesce(l.running, CASE WHEN l.ordered THEN 1 END), l.count, l.per_s,
    CASE WHEN l.count IS NOT NULL THEN coalesce(l.burst, greatest(1, ceil(l.count / 10.0)::int)) END, coalesce(l.ordered, false), maker, moment
  FROM ROWS FROM (jsonb_to_recordset(named) AS (key text, "limit" jsonb)) WITH ORDINALITY AS n (key, "limit", ord)
  CROSS JOIN LATERAL jsonb_to_record(n."limit") AS l (running int, count int, per_s float8, burst int, ordered boolean)
  WHERE (coalesce(l.running, l.count) IS NOT NULL OR l.ordered) AND NOT EXISTS (SELECT FROM limits o WHERE o.key = n.key)
  ORDER BY n.key, n.ord
  ON CONFLICT DO NOTHING;
  SELECT n.key INTO missing FROM jsonb_to_recordset(named) AS n (key text) WHERE NOT EXISTS (SELECT FROM limits o WHERE o.key = n.key) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'limit.key: there is no limit named "%"', missing
      USING ERRCODE = '22023', HINT = 'Say how much it allows, as in {"key": "stripe", "running": 5}, or set it once for all jobs that name it.';
  END IF;
END
$$;
