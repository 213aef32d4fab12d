-- Makes the partitions of this instant if they are missing.
-- Promises: the caller can insert rows of this instant and of the second after it: the ids of one batch are a microsecond apart, so its
-- last ones may lie beyond midnight. Costs a few look-ups in the catalogue cache when nothing is missing, which is nearly always.
-- Called by: finish_batch, finish_runs, revise, submit_jobs, unplan, store/work/schedules.sql. Locks: those of make_partition, only if a partition
-- is missing.
CREATE OR REPLACE FUNCTION sexton.ensure_partitions(at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  today timestamp := at AT TIME ZONE 'UTC';
  last timestamp := today + interval '1 second';
BEGIN
  IF to_regclass('sexton.endings_' || to_char(today, 'IYYY"w"IW')) IS NULL
     OR to_regclass('sexton.executions_' || to_char(today, 'YYYYMMDD')) IS NULL
     OR last::date <> today::date AND (
       to_regclass('sexton.endings_' || to_char(last, 'IYYY"w"IW')) IS NULL
       OR to_regclass('sexton.executions_' || to_char(last, 'YYYYMMDD')) IS NULL) THEN
    PERFORM sexton.make_partitions(at, at + interval '1 day');
  END IF;
END
$$;
