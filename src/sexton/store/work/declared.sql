-- name: begin
-- One sync at a time: one that prunes and one that updates could each hold a lock that the other needs. The
-- advisory lock is that of the release before. It is waited for only if a role with the rights of a service holds it
-- (rule "no lock that others may take"). $1 now
WITH mine AS MATERIALIZED (
  SELECT l.n FROM sexton.locks l WHERE l.what = 'declare' FOR UPDATE
), beside AS MATERIALIZED (
  SELECT CASE WHEN pg_try_advisory_xact_lock(7307, 2) THEN ''
    WHEN sexton.held_by_service(7307, 2) THEN pg_advisory_xact_lock(7307, 2)::text END FROM mine
)
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now FROM beside

-- name: ended
-- Of the documents, those whose schedule has ended and is still equal. $1 documents, $2 the reason of a prune, which does not
-- count
SELECT g.name
FROM sexton.read_schedules($1::jsonb) g CROSS JOIN LATERAL (
  SELECT * FROM sexton.jobs_recurring k WHERE k.name = g.name AND k.tenant = g.tenant ORDER BY k.id DESC LIMIT 1
) j
WHERE j.over_at IS NOT NULL AND j.over_reason IS DISTINCT FROM $2::text
  AND sexton.same_schedule((SELECT k FROM sexton.jobs_recurring k WHERE k.id = j.id), g)

-- name: known
-- The schedule of each name: the one that has it or was declared with it, live ones first, then the newest; what was declared for it last,
-- and whether its last change was by hand. A schedule that was renamed to a name that is declared as well belongs to that. $1 names
WITH found AS MATERIALIZED (
  SELECT n.name AS declared, j.id, j.over_at
  FROM unnest($1::text[]) AS n (name) CROSS JOIN LATERAL (
    SELECT * FROM sexton.jobs_recurring k WHERE k.name = n.name AND k.tenant = 'default' ORDER BY k.id DESC LIMIT 1
  ) j
  UNION ALL
  SELECT d.name, j.id, j.over_at FROM sexton.declarations d JOIN sexton.jobs_recurring j ON j.id = d.job_id
  WHERE d.name = ANY ($1) AND (j.name = ANY ($1)) IS NOT TRUE AND j.tenant = 'default'
), best AS MATERIALIZED (
  SELECT DISTINCT ON (f.declared) f.declared, f.id FROM found f ORDER BY f.declared, f.over_at IS NOT NULL, f.id DESC
)
SELECT b.declared AS name, j.id, d.digest, j.over_at IS NULL AS is_live, j.over_reason IS NOT DISTINCT FROM $2::text AS is_pruned,
  coalesce((SELECT v.replaced_by NOT LIKE 'sync:%' FROM sexton.job_versions v WHERE v.job_id = j.id AND v.version = j.version - 1), false) AS is_edited,
  j.name IS DISTINCT FROM b.declared AS is_renamed
FROM best b JOIN sexton.jobs_recurring j ON j.id = b.id LEFT JOIN sexton.declarations d ON d.job_id = j.id

-- name: record
-- $1 schedules, $2 the names and $3 the digests of their declarations
INSERT INTO sexton.declarations AS d (job_id, name, digest)
SELECT x.job_id, x.name, x.digest FROM unnest($1::uuid[], $2::text[], $3::text[]) AS x (job_id, name, digest) ORDER BY x.job_id
ON CONFLICT (job_id) DO UPDATE SET name = excluded.name, digest = excluded.digest
WHERE (d.name, d.digest) IS DISTINCT FROM (excluded.name, excluded.digest)

-- name: adopt
-- Schedules that another app's code declared now belong to this app. $1 schedules, $2 the mark of this app
UPDATE sexton.jobs_recurring j SET submitted_by = $2::text
WHERE j.id = ANY ($1::uuid[]) AND j.submitted_by LIKE 'sync:%' AND j.submitted_by <> $2

-- name: undeclared
-- Schedules made by a sync of this app that its code no longer declares, by any name. $1 the mark of this app, $2 the names it declares
SELECT j.id, j.name FROM sexton.jobs_recurring j
WHERE j.tenant = 'default' AND j.over_at IS NULL AND j.name IS NOT NULL AND j.submitted_by = $1 AND j.name <> ALL ($2::text[])
  AND NOT EXISTS (SELECT FROM sexton.declarations d WHERE d.job_id = j.id AND d.name = ANY ($2))
ORDER BY j.tenant, j.name
