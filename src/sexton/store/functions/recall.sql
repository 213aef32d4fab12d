-- As recall_late, without a way to look behind locked jobs. Returns how many jobs are planned again.
-- Promises: nothing to this release; services of 413f5aa call it, and it stays until the release that removes it.
-- Called by: no code. Locks: those of recall_late.
-- superseded by: recall_late; removed in: 0.2.0
-- signature: sexton.recall(smallint[], int, timestamptz)
CREATE OR REPLACE FUNCTION sexton.recall(partitions smallint[], at_most int, at timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN (SELECT count(*) FROM sexton.recall_late(partitions, at_most, '{}', at) r WHERE NOT r.is_left);
END
$$;
