-- name: identity
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
  (SELECT oid FROM pg_database WHERE datname = current_database()) AS database_oid

-- name: known_identity
SELECT id, system_identifier, database_oid FROM sexton.cluster

-- name: adopt
INSERT INTO sexton.cluster (id, system_identifier, database_oid, adopted_at)
VALUES (gen_random_uuid(), $1, $2, clock_timestamp())
ON CONFLICT (one_row) DO UPDATE SET id = excluded.id, system_identifier = excluded.system_identifier,
  database_oid = excluded.database_oid, adopted_at = excluded.adopted_at
