-- Creates one partition if it is missing; returns whether it did.
-- Promises: CREATE … LIKE, then ATTACH: unlike CREATE … PARTITION OF this does not lock out readers and writers of the parent.
-- Called by: make_partitions. Locks: SHARE UPDATE EXCLUSIVE on `cluster` until the end of the transaction, so that there is one maker at a
-- time, and on the parent. It does not touch rows, and only roles that may change the table can take it (rule "no lock that others may take").
CREATE OR REPLACE FUNCTION sexton.make_partition(parent text, suffix text, low timestamptz, high timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  child text := parent || '_' || suffix;
BEGIN
  IF to_regclass('sexton.' || child) IS NOT NULL THEN
    RETURN false;
  END IF;
  LOCK TABLE ONLY sexton.cluster IN SHARE UPDATE EXCLUSIVE MODE;  -- one maker at a time; the second finds the table made
  -- to_regclass could answer from a cache.
  IF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'sexton'::regnamespace AND c.relname = child) THEN
    RETURN false;
  END IF;
  EXECUTE format('CREATE TABLE sexton.%I (LIKE sexton.%I INCLUDING ALL)', child, parent);
  EXECUTE format('ALTER TABLE sexton.%I ATTACH PARTITION sexton.%I FOR VALUES FROM (%L) TO (%L)',
                 parent, child, sexton.uuid7_floor(low), sexton.uuid7_floor(high));
  RETURN true;
END
$$;
