"""The advisory locks of migrations. Correctness does not depend on them: any role that may connect can take them, so a lock
that is held by a role without the rights of a migrator is not waited for (rule "no lock that others may take")."""

from __future__ import annotations

_HELD_BY_A_MIGRATOR = """\
EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = 7307 AND l.objid = {key}
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND CASE WHEN to_regnamespace('sexton') IS NULL THEN has_database_privilege(a.usesysid, current_database(), 'CREATE')
        ELSE has_schema_privilege(a.usesysid, to_regnamespace('sexton')::oid, 'CREATE') END)"""
_LAST_RELEASE, _TURN = (_HELD_BY_A_MIGRATOR.format(key=key) for key in (0, 3))

# The lock of the migrations up to commit 413f5aa: none of them runs at the same time as one of our transactions.
LOCK = f"""\
SELECT CASE WHEN pg_try_advisory_xact_lock(7307, 0) THEN NULL WHEN {_LAST_RELEASE} THEN pg_advisory_xact_lock(7307, 0) END"""
# Whether it is this migrator's turn.
TRY = f"SELECT CASE WHEN pg_try_advisory_xact_lock(7307, 3) THEN true ELSE NOT {_TURN} END"
