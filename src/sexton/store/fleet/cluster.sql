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

-- name: lacks
-- What a submission or a change of a job needs to write.
WITH needed(ord, name, permissions) AS (VALUES
  (1, 'runs', '{SELECT,INSERT,UPDATE,DELETE}'::text[]), (2, 'jobs', '{SELECT,INSERT,UPDATE}'), (3, 'jobs_recurring', '{SELECT,INSERT,UPDATE}'),
  (4, 'executions', '{SELECT,INSERT}'), (5, 'idempotency_keys', '{SELECT,INSERT,UPDATE}'), (6, 'job_tags', '{SELECT,INSERT}'))
SELECT current_setting('transaction_read_only')::bool AS is_read_only,
  (SELECT n.name FROM needed n WHERE to_regclass('sexton.' || n.name) IS NULL ORDER BY n.ord LIMIT 1) AS missing,
  (SELECT w.permission || ' on sexton.' || n.name FROM needed n CROSS JOIN unnest(n.permissions) WITH ORDINALITY AS w(permission, ord)
   WHERE NOT has_table_privilege(to_regclass('sexton.' || n.name), w.permission) ORDER BY n.ord, w.ord LIMIT 1) AS permission
