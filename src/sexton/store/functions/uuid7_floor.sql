-- The smallest UUIDv7 of an instant: the bound of partitions and of scans by time.
-- Promises: PUBLIC may call it (store/migrations/rights.sql), because it is pure.
-- Called by: make_partition, unplan, store/work/dead_letters.sql, store/work/retention.sql, store/work/run_payloads.sql,
-- store/work/schedules.sql, store/work/zones.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.uuid7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT encode(int8send((floor(extract(epoch FROM at) * 1000)::bigint << 16) | 28672) || '\x8000000000000000'::bytea, 'hex')::uuid
$$;
