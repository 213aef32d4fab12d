-- name: begin
-- One sync at a time: one that prunes and one that updates could each hold a lock that the other needs. $1 now
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now FROM (SELECT pg_advisory_xact_lock(7307, 2)) AS locked

-- name: ended
-- Of the documents, those whose schedule has ended and is still equal. $1 documents, $2 the reason of a prune, which does not
-- count
SELECT g.name
FROM sexton.read_schedules($1::jsonb) g CROSS JOIN LATERAL (
  SELECT * FROM sexton.jobs_recurring k WHERE k.name = g.name AND k.tenant = g.tenant ORDER BY k.id DESC LIMIT 1
) j
WHERE j.over_at IS NOT NULL AND j.over_reason IS DISTINCT FROM $2::text
  AND sexton.same_schedule((SELECT k FROM sexton.jobs_recurring k WHERE k.id = j.id), g)

-- name: adopt
-- Schedules that another app's code declared now belong to this app. $1 schedules, $2 the mark of this app
UPDATE sexton.jobs_recurring j SET submitted_by = $2::text
WHERE j.id = ANY ($1::uuid[]) AND j.submitted_by LIKE 'sync:%' AND j.submitted_by <> $2

-- name: undeclared
-- Schedules made by a sync of this app that its code no longer declares. $1 the mark of this app, $2 the names it declares
SELECT j.id, j.name FROM sexton.jobs_recurring j
WHERE j.tenant = 'default' AND j.over_at IS NULL AND j.name IS NOT NULL AND j.submitted_by = $1 AND j.name <> ALL ($2::text[])
ORDER BY j.tenant, j.name
