-- 64 random bits.
-- Promises: one call draws once for all the ids it makes. Where PostgreSQL opens the random device for each, one id costs 3 to 5 µs, a
-- quarter of what ending a run takes (docs/adr/019).
-- Called by: finish_batch, finish_runs, submit_jobs. Locks: none.
CREATE OR REPLACE FUNCTION sexton.dice() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT hashtextextended(gen_random_uuid()::text, 0) $$;
