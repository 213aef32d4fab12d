"""Reports rows that the services pass over because another session has locked them for long (rule "never wait inside a batch"),
tables that another session has locked, and advisory locks of Sexton that a session of another kind holds (rule
"no lock that others may take").

While no transaction is open for long it is two queries of the server's list of locks. It never waits for a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sexton.clock import Clock
from sexton.domain import partition
from sexton.domain.reminders import Reminders
from sexton.store.database import Database
from sexton.store.views import locked_rows, locked_tables
from sexton.store.views.locked_rows import HeldKey, LockedRow
from sexton.store.views.locked_tables import LockedTables
from sexton.telemetry.events import AdvisoryLockTaken, Emit, RowLocked, TableLocked

from .overdue_check import Led

REST_S = 5.0
LONG_S = 10.0  # a row may be locked; the warning comes at the next look, so within 15 s
TABLE_LONG_S = 3.0  # a table that is locked stops services; the warning comes at the second look, so within 10 s
REMIND_S = 30.0  # between two warnings about the same session and kind of row


class LockWatcher:
    name = "lock_watcher"

    def __init__(self, database: Database, led: Led, *, clock: Clock, emit: Emit) -> None:
        """Reports the rows of the partitions that this node leads, so that one node reports each row."""
        self._database, self._led, self._clock, self._emit = database, led, clock, emit
        self._open: dict[str, float] = {}  # transactions at the last pass, with the time of the first pass that saw them
        self._looked_at = 0.0
        self._found_at: dict[str, float] = {}  # by row, while it stays locked
        self._reminders = Reminders(REMIND_S)
        self._tables_found_at: dict[str, float] = {}  # by the session that has locked them
        self._table_reminders = Reminders(REMIND_S)

    async def run_once(self) -> float:
        async with self._database.connection() as connection:
            tables = await locked_tables.look(connection)
            self._report_tables(tables)
            seen = await locked_rows.look(connection)
            holders = seen.holders
            lasting = {xid: holder for xid, holder in holders.items() if xid in self._open}
            if any(one.stops_reading for one in tables):
                lasting = {}  # to look at the rows would wait
            rows = await locked_rows.due(connection, lasting, until=self._clock.database_now())
        now = self._clock.monotonic()
        since = {xid: self._open.get(xid, now) for xid in holders}
        led = self._led()
        # A session that holds a leader's lock leaves its partition without a leader: each node reports it.
        self._report([*[row for row in rows if partition.of(row.job_id) in led], *seen.keys], since, now)
        self._open, self._looked_at = since, now
        return REST_S

    def _report_tables(self, tables: Sequence[LockedTables]) -> None:
        """Each node reports them: they stop all partitions, and leadership too."""
        now = self._clock.monotonic()
        self._tables_found_at = {one.holder.xid: self._tables_found_at.get(one.holder.xid, now) for one in tables}
        self._table_reminders.keep(self._tables_found_at)
        for one in tables:
            locked_s, holder = now - self._tables_found_at[one.holder.xid], one.holder
            if locked_s >= TABLE_LONG_S and self._table_reminders.is_due(holder.xid, now):
                self._emit(TableLocked(one.words, locked_s, holder.words, holder.age_s, one.advice))

    def _report(self, rows: Sequence[LockedRow | HeldKey], since: Mapping[str, float], now: float) -> None:
        """The pass that first saw a transaction did not look for its rows: those found by the next pass count from then."""
        self._found_at = {
            row.key: self._found_at.get(row.key, now if since.get(row.holder.xid, now) < self._looked_at else self._looked_at)
            if isinstance(row, LockedRow)
            else self._found_at.get(row.key, now)
            for row in rows
        }
        # One line for all rows of a kind: while a session is idle, each minute brings new runs that it has locked.
        self._reminders.keep({_kind(row) for row in rows})
        held: dict[tuple[str, str], list[LockedRow | HeldKey]] = {}
        for row in rows:
            if now - self._found_at[row.key] >= LONG_S:
                held.setdefault(_kind(row), []).append(row)
        for kind, alike in held.items():
            if self._reminders.is_due(kind, now):
                longest = min(alike, key=lambda row: self._found_at[row.key])
                self._tell(longest, now - self._found_at[longest.key], len(alike) - 1)

    def _tell(self, row: LockedRow | HeldKey, locked_s: float, more_count: int) -> None:
        holder = row.holder
        if isinstance(row, HeldKey):
            self._emit(AdvisoryLockTaken(row.words, locked_s, holder.words, row.advice, more_count=more_count))
            return
        self._emit(
            RowLocked(
                row.words, row.job_id, row.run_id, locked_s, holder.words, holder.age_s, holder.advice, more_count=more_count
            )
        )


def _kind(row: LockedRow | HeldKey) -> tuple[str, str]:
    """A session may hold advisory locks over many transactions, so it is not known by its transaction."""
    return str(row.holder.pid or row.holder.gid), row.kind if isinstance(row, LockedRow) else "advisory lock"
