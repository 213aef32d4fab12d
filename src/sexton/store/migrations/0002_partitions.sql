-- Partitions are made ahead by the janitor; whoever still misses one makes it on the spot (`ensure_partitions`).

-- CREATE … LIKE, then ATTACH: unlike CREATE … PARTITION OF this does not lock out readers and writers of the parent.
CREATE FUNCTION sexton.make_partition(parent text, suffix text, low timestamptz, high timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
DECLARE
  child text := parent || '_' || suffix;
BEGIN
  IF to_regclass('sexton.' || child) IS NOT NULL THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock(7307, 1);  -- one maker at a time; the second finds the table made
  -- to_regclass would answer from a cache that waiting for an advisory lock does not refresh.
  IF EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'sexton'::regnamespace AND c.relname = child) THEN
    RETURN false;
  END IF;
  EXECUTE format('CREATE TABLE sexton.%I (LIKE sexton.%I INCLUDING ALL)', child, parent);
  EXECUTE format('ALTER TABLE sexton.%I ATTACH PARTITION sexton.%I FOR VALUES FROM (%L) TO (%L)',
                 parent, child, sexton.uuid7_floor(low), sexton.uuid7_floor(high));
  RETURN true;
END
$$;

-- Jobs and their endings by ISO week, executions by day, in UTC whatever the session's time zone.
CREATE FUNCTION sexton.make_partitions(first timestamptz, last timestamptz) RETURNS int
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET timezone = 'UTC' AS $$
DECLARE
  made int := 0;
  step timestamptz;
BEGIN
  FOR step IN SELECT generate_series(date_trunc('week', first), last, interval '7 days') LOOP
    made := made + make_partition('jobs', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int
                 + make_partition('endings', to_char(step, 'IYYY"w"IW'), step, step + interval '7 days')::int;
  END LOOP;
  FOR step IN SELECT generate_series(date_trunc('day', first), last, interval '1 day') LOOP
    made := made + make_partition('executions', to_char(step, 'YYYYMMDD'), step, step + interval '1 day')::int;
  END LOOP;
  RETURN made;
END
$$;

-- A few look-ups in the catalogue cache when nothing is missing, which is always but once. The ids of one batch are a microsecond
-- apart, so its last ones may lie beyond midnight.
CREATE FUNCTION sexton.ensure_partitions(at timestamptz) RETURNS void
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

SELECT sexton.make_partitions(clock_timestamp() - interval '1 day', clock_timestamp() + interval '15 days');

-- Takes a partition out and drops it. Waits briefly for the lock; the janitor simply comes back.
CREATE FUNCTION sexton.drop_partition(parent text, child text) RETURNS void
LANGUAGE plpgsql SET search_path = sexton, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
  EXECUTE format('ALTER TABLE sexton.%I DETACH PARTITION sexton.%I', parent, child);
  EXECUTE format('DROP TABLE sexton.%I', child);
END
$$;
