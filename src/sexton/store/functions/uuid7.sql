-- A UUIDv7 of a microsecond since the epoch. The 12 bits after the version are the microseconds (RFC 9562, method 3), so ids made one
-- microsecond apart sort in that order.
-- Promises: PostgreSQL inlines it when `micros` is a plain column.
-- Called by: recurring_id, revise, unplan, store/work/backfills.sql, store/work/dead_letters.sql, store/work/schedules.sql,
-- store/work/subscriptions.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.uuid7(micros bigint) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(int8send(((micros / 1000) << 16) | 28672 | ((micros % 1000) * 4096 / 1000))
                || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid
$$;
