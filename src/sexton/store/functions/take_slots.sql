-- Takes a free slot for each run, or makes one while there are fewer than `maxes` allows; null where there is none.
-- Promises: rule "slots, not counts". The limit may have been lowered: only those slots are given out that leave the total within the
-- limit, whatever other sessions take at the same time. New slots are written by INSERT, which goes by the primary key. An UPDATE with a
-- join, planned on a small table, used a nested loop over all slots: 200 µs per run in a claim of 100.
-- Called by: admit_runs, release_parked. Locks: the rows of `slots`, with SKIP LOCKED.
CREATE OR REPLACE FUNCTION sexton.take_slots(keys text[], maxes int[], run_ids uuid[]) RETURNS int[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  taken int[];
  places int[];
  is_disputed boolean;
BEGIN
  -- Existing free slots: usually they are enough. Each is written where it was locked. Slots above the limit are searched key
  -- by key (OFFSET 0): a join, planned on a small table, scanned the slots of all keys.
  WITH asked AS MATERIALIZED (
    SELECT k.takers, ARRAY(
      SELECT o.ctid FROM slots o WHERE o.key = k.key AND o.run_id IS NULL AND o.n <= k.max
      ORDER BY o.n LIMIT cardinality(k.takers) FOR UPDATE SKIP LOCKED) AS free
    FROM (
      SELECT w.key, max(w.max) AS max, array_agg(w.ord::int) AS takers
      FROM unnest(keys, maxes) WITH ORDINALITY AS w(key, max, ord) WHERE w.key IS NOT NULL GROUP BY w.key) k
    WHERE NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n > k.max AND o.run_id IS NOT NULL OFFSET 0)
  ), written AS (
    UPDATE slots s SET run_id = run_ids[g.ord]
    FROM (SELECT unnest(a.takers) AS ord, unnest(a.free) AS place FROM asked a OFFSET 0) g
    WHERE s.ctid = g.place AND s.run_id IS NULL RETURNING s.n, g.ord
  )
  SELECT array_agg(w.n ORDER BY w.ord), array_agg(w.ord ORDER BY w.ord) INTO taken, places FROM written w;
  IF cardinality(taken) = cardinality(run_ids) THEN
    RETURN taken;
  END IF;
  SELECT array_agg(t.n ORDER BY t.ord) INTO taken FROM (
    SELECT max(w.n) AS n, w.ord FROM (
      SELECT unnest(taken) AS n, unnest(places) AS ord UNION ALL SELECT NULL, generate_subscripts(run_ids, 1)) w GROUP BY w.ord) t;

  FOR attempt IN 1..3 LOOP
    EXIT WHEN cardinality(array_remove(taken, NULL)) = cardinality(array_remove(keys, NULL));
    WITH asked AS MATERIALIZED (
      SELECT k.key, k.takers, ARRAY(
        SELECT o.n FROM slots o WHERE o.key = k.key AND o.run_id IS NULL AND o.n <= h.highest
        ORDER BY o.n LIMIT cardinality(k.takers) FOR UPDATE SKIP LOCKED) AS free,
        CASE WHEN e.last + cardinality(k.takers) <= h.highest THEN ARRAY(SELECT generate_series(e.last + 1, e.last + cardinality(k.takers)))
          -- Slots in between are missing after a limit was removed or lowered while a later one was held.
          WHEN (SELECT count(*) FROM slots o WHERE o.key = k.key AND o.n <= h.highest) < h.highest THEN ARRAY(
            SELECT m FROM generate_series(1, h.highest) AS m WHERE NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n = m)
            ORDER BY m LIMIT cardinality(k.takers)) END AS missing
      FROM (
        SELECT w.key, max(w.max) AS max, array_agg(w.run_id ORDER BY w.ord) AS takers
        FROM unnest(keys, maxes, run_ids, taken) WITH ORDINALITY AS w(key, max, run_id, n, ord)
        WHERE w.key IS NOT NULL AND w.n IS NULL GROUP BY w.key) k
      CROSS JOIN LATERAL (
        SELECT CASE WHEN NOT EXISTS (SELECT FROM slots o WHERE o.key = k.key AND o.n > k.max AND o.run_id IS NOT NULL OFFSET 0) THEN k.max
          ELSE (SELECT coalesce(max(m), 0) FROM generate_series(1, k.max) AS m
                WHERE m + (SELECT count(*) FROM slots o WHERE o.key = k.key AND o.n > m AND o.run_id IS NOT NULL) <= k.max) END AS highest
        OFFSET 0) h
      CROSS JOIN LATERAL (SELECT coalesce(max(o.n), 0) AS last FROM slots o WHERE o.key = k.key) e
    ), given AS MATERIALIZED (
      SELECT g.key, g.n, g.run_id FROM (
        SELECT a.key, t.run_id, CASE WHEN t.nth <= cardinality(a.free) THEN a.free[t.nth]
          ELSE a.missing[t.nth - cardinality(a.free)] END AS n
        FROM asked a CROSS JOIN LATERAL unnest(a.takers) WITH ORDINALITY AS t(run_id, nth) OFFSET 0) g
      WHERE g.n IS NOT NULL
    ), written AS (
      INSERT INTO slots AS o (key, n, run_id) SELECT g.key, g.n, g.run_id FROM given g ORDER BY g.key, g.n
      ON CONFLICT (key, n) DO UPDATE SET run_id = excluded.run_id WHERE o.run_id IS NULL RETURNING o.run_id, o.n
    ), answers AS (
      SELECT w.run_id, max(w.n) AS n, max(w.ord) AS ord FROM (
        SELECT r.run_id, r.n, r.ord FROM unnest(run_ids, taken) WITH ORDINALITY AS r(run_id, n, ord)
        UNION ALL SELECT w.run_id, w.n, NULL FROM written w) w
      GROUP BY w.run_id
    )
    SELECT array_agg(a.n ORDER BY a.ord), (SELECT count(*) FROM given) > (SELECT count(*) FROM written) INTO taken, is_disputed FROM answers a;
    EXIT WHEN NOT is_disputed;  -- else another session has created the same slot, and there may be another one
  END LOOP;
  RETURN taken;
END
$$;
