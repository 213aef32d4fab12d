-- name: release
SELECT coalesce(queues, '{}') AS queues, released AS released_count, next_s, coalesce(stopped_at, '') AS stopped_at
FROM sexton.release_parked(NULL, $1::timestamptz, $2::text)

-- name: tend
SELECT coalesce(queues, '{}') AS queues, aged AS aged_count, next_s FROM sexton.tend_queues($1::timestamptz)

-- name: mend
SELECT sexton.mend_slots() AS mended_count
