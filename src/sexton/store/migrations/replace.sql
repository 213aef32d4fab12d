-- The old function gives way to the new one. Roles that may call the old one may call the new one.
SELECT set_config('sexton.kept_rights', coalesce(string_agg(format('GRANT EXECUTE ON FUNCTION sexton.{name} TO %I%s;',
  pg_get_userbyid(a.grantee), CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END), ' '), ''), true)
FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
WHERE p.oid = ANY (ARRAY[{known}]::oid[]) AND a.grantee NOT IN (0, p.proowner);
{drops}
{new}
DO $$ BEGIN EXECUTE current_setting('sexton.kept_rights'); END $$;
