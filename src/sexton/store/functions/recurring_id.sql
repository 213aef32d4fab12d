-- An id for a recurring job.
-- Promises: a UUIDv7 with the first bit set (docs/adr/008), so it is never the id of a one-time job.
-- Called by: submit_schedules. Locks: none.
CREATE OR REPLACE FUNCTION sexton.recurring_id(micros bigint) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_byte(id, 0, get_byte(id, 0) | 128), 'hex')::uuid FROM uuid_send(sexton.uuid7(micros)) AS id
$$;
