-- Whether a session that may be a service holds the advisory lock (class, key): its role may change runs, or is that of this session. Any role that may connect to the
-- database can take an advisory lock, so a lock that another role holds counts for nothing (rule "no lock that others may take").
-- Promises: true where the role is not known. Never waits and locks nothing.
-- Called by: release_parked, store/work/declared.sql, store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.held_by_service(class int, key int) RETURNS boolean LANGUAGE sql STABLE SET search_path = sexton, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND l.virtualtransaction = '-1/' || p.transaction
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = class::oid AND l.objid = key::oid
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND coalesce(sexton.may_serve(coalesce(a.usesysid, (SELECT r.oid FROM pg_roles r WHERE r.rolname = p.owner))), true))
$$;
