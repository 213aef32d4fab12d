-- Uniqueness by content: finds the job that already represents an equal one, or lets the new job represent it.
-- Promises: rule "lock, then decide". The first statement takes or locks the row of each key; the second looks whether the job of
-- that row still counts: it has not started, or the period it was asked for has not passed. With `replace`, its runs that have not
-- started are cancelled and the new job takes its place.
-- Called by: submit_jobs. Locks: rows of `unique_keys` in order of tenant and key; with `replace`, the runs of the replaced job.
CREATE OR REPLACE FUNCTION sexton.claim_unique(jobs jsonb, fresh uuid[], chosen uuid[], moment timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = sexton, pg_temp AS $$
#variable_conflict use_column
DECLARE
  rival record;
BEGIN
  FOR rival IN
    WITH wanted AS MATERIALIZED (
      SELECT d.ord, coalesce(d.doc->>'tenant', 'default') AS tenant, chosen[d.ord] AS id,
        coalesce((d.doc->'unique'->>'replace')::boolean, false) AS replace,
        moment + make_interval(secs => (d.doc->'unique'->>'holds_s')::float8) AS holds_until,
        sha256(convert_to((SELECT jsonb_object_agg(part, CASE part
            WHEN 'task' THEN d.doc->'task' WHEN 'name' THEN d.doc->'name' WHEN 'payload' THEN coalesce(d.doc->'payload', '{}')
            ELSE d.doc #> string_to_array(part, '.') END)
          FROM jsonb_array_elements_text(d.doc->'unique'->'by') AS part)::text, 'UTF8')) AS key
      FROM jsonb_array_elements(jobs) WITH ORDINALITY AS d(doc, ord)
      WHERE d.doc ? 'unique' AND chosen[d.ord] = fresh[d.ord]
    ), taken AS (
      INSERT INTO unique_keys AS u (tenant, key, job_id, holds_until)
      SELECT DISTINCT ON (tenant, key) tenant, key, id, holds_until FROM wanted ORDER BY tenant, key, ord
      ON CONFLICT (tenant, key) DO UPDATE SET job_id = u.job_id
      RETURNING tenant, key, job_id, holds_until
    )
    SELECT w.*, t.job_id AS holder, t.holds_until AS held_until,
      min(w.ord) OVER (PARTITION BY w.tenant, w.key) AS first_ord
    FROM wanted w JOIN taken t ON t.tenant = w.tenant AND t.key = w.key ORDER BY w.ord
  LOOP
    IF rival.ord <> rival.first_ord THEN  -- equal to an earlier one of the same call
      chosen[rival.ord] := chosen[rival.first_ord];
      CONTINUE;
    END IF;
    CONTINUE WHEN rival.holder = rival.id;
    IF rival.replace THEN
      PERFORM sexton.finish_runs(jsonb_agg(jsonb_build_object(
        'run_id', p.id, 'token', p.token, 'next', 'end', 'status', 'cancelled', 'ending', 'cancelled',
        'reason', 'replaced by ' || rival.id)), moment)
      FROM (SELECT r.id, r.token FROM runs r WHERE r.job_id = rival.holder AND r.worker_id IS NULL FOR UPDATE) p HAVING count(*) > 0;
    ELSIF rival.held_until > moment
       OR EXISTS (SELECT FROM runs r WHERE r.job_id = rival.holder AND r.state <> 'running') THEN
      chosen[rival.ord] := rival.holder;
      CONTINUE;
    END IF;
    UPDATE unique_keys u SET job_id = rival.id, holds_until = rival.holds_until WHERE u.tenant = rival.tenant AND u.key = rival.key;
  END LOOP;
  RETURN chosen;
END
$$;
