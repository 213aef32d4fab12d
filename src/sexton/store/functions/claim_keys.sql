-- Takes each idempotency key, or finds the job that has it.
-- Promises: concurrent submissions with the same key give one job. A key that was used for a different body is rejected (SX422).
-- Called by: submit_jobs. Locks: rows of `idempotency_keys`, in order of tenant and key, so that two batches cannot deadlock. The
-- INSERT waits for a rival that has not committed; lock_timeout of the caller bounds the wait.
CREATE OR REPLACE FUNCTION sexton.claim_keys(jobs jsonb, chosen uuid[], moment timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
#variable_conflict use_column
DECLARE
  answered uuid[];
  reused text;
BEGIN
  WITH keyed AS MATERIALIZED (
    SELECT d.ord, coalesce(d.doc->>'tenant', 'default') AS tenant, d.doc->>'key' AS key, chosen[d.ord] AS id,
      sha256(convert_to(coalesce(d.doc->>'fingerprint', (d.doc - '{key,key_ttl_s,trace,submitted_by}'::text[])::text), 'UTF8')) AS body,
      moment + make_interval(secs => coalesce((d.doc->>'key_ttl_s')::float8, 604800)) AS expires_at
    FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
    WHERE d.doc->>'key' IS NOT NULL
  ), taken AS (
    INSERT INTO idempotency_keys AS k (tenant, key, job_id, body, expires_at)
    SELECT DISTINCT ON (tenant, key) tenant, key, id, body, expires_at FROM keyed ORDER BY tenant, key, ord
    ON CONFLICT (tenant, key) DO UPDATE SET
      job_id = CASE WHEN k.expires_at <= moment THEN excluded.job_id ELSE k.job_id END,
      body = CASE WHEN k.expires_at <= moment THEN excluded.body ELSE k.body END,
      completed_at = CASE WHEN k.expires_at <= moment THEN NULL ELSE k.completed_at END,
      execution_id = CASE WHEN k.expires_at <= moment THEN NULL ELSE k.execution_id END,
      expires_at = CASE WHEN k.expires_at <= moment THEN excluded.expires_at ELSE k.expires_at END
    RETURNING tenant, key, job_id, body
  )
  SELECT array_agg(coalesce(taken.job_id, c.id) ORDER BY c.ord), min(keyed.key) FILTER (WHERE taken.body <> keyed.body)
  INTO answered, reused
  FROM unnest(chosen) WITH ORDINALITY AS c(id, ord) LEFT JOIN keyed ON keyed.ord = c.ord
  LEFT JOIN taken ON taken.tenant = keyed.tenant AND taken.key = keyed.key;
  IF reused IS NOT NULL THEN
    RAISE EXCEPTION 'key: the idempotency key "%" was used for a different submission', reused
      USING ERRCODE = 'SX422', HINT = 'Use a new key, or send the first submission again unchanged.';
  END IF;
  RETURN answered;
END
$$;
