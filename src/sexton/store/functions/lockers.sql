-- The transactions that hold, or held, a lock on a row, from the xmax of the row: that transaction itself, then the members if it is a
-- multixact (several lockers, or a savepoint). An xmax does not say which of both it is, and it stays after the transaction has ended:
-- compare with the transactions that are open (pg_locks).
-- Promises: never waits and locks nothing.
-- Called by: store/views/locked_rows.sql, store/work/schedules.sql. Locks: none.
CREATE OR REPLACE FUNCTION sexton.lockers(row_xmax xid) RETURNS text[] LANGUAGE sql STABLE AS $$
  SELECT ARRAY[row_xmax::text] || CASE
    WHEN mxid_age(row_xmax) BETWEEN 1 AND (SELECT mxid_age(d.datminmxid) FROM pg_database d WHERE d.datname = current_database())
    THEN ARRAY(SELECT m.xid::text FROM pg_get_multixact_members(row_xmax) m WHERE m.mode <> 'keysh') ELSE '{}' END
$$;
