-- The instant in a UUIDv7.
-- Promises: to the microsecond, from the milliseconds and the 12 bits after the version, which are the fraction of a millisecond.
-- Called by: tell_subscribers. Locks: none.
CREATE OR REPLACE FUNCTION sexton.instant_of(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT timestamptz 'epoch' + ((bits >> 16) * 1000 + ((bits & 4095) * 1000 + 4095) / 4096) * interval '1 microsecond'
  FROM (SELECT ('x' || substr(replace(id::text, '-', ''), 1, 16))::bit(64)::bigint AS bits) AS first
$$;
