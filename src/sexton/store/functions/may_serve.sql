-- Whether this role has the rights of a service.
-- Promises: true if it may change runs, or become the role that owns them, or if it is the role of this session: a service whose rights were
-- revoked does not take itself for a stranger. Null if the role is not known. Never waits and locks nothing.
-- Called by: held_by_service, store/views/locked_rows.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.may_serve(role oid) RETURNS boolean LANGUAGE sql STABLE SET search_path = sexton, pg_temp AS $$
  SELECT has_table_privilege(role, c.oid, 'UPDATE') OR pg_has_role(role, c.relowner, 'MEMBER')
    OR role = (SELECT r.oid FROM pg_roles r WHERE r.rolname = session_user)
  FROM pg_class c WHERE c.oid = 'sexton.runs'::regclass
$$;
