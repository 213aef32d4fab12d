-- sexton.uuid7(micros, bits): a UUIDv7 as sexton.uuid7(micros) makes it, with the lowest 62 of `bits` in place of random bits. See dice.
-- Promises: the same arguments give the same id.
-- Called by: finish_batch, finish_runs, submit_jobs. Locks: none.
CREATE OR REPLACE FUNCTION sexton.uuid7(micros bigint, bits bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT encode(int8send(((micros / 1000) << 16) | 28672 | ((micros % 1000) * 4096 / 1000))
                || int8send((bits & 4611686018427387903) | (-9223372036854775808)), 'hex')::uuid
$$;
