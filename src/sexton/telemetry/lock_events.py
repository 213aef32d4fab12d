"""Events about locks that other sessions hold. Subscribers and services import them from `events`."""

from __future__ import annotations

from uuid import UUID

import msgspec


class Contended(msgspec.Struct, frozen=True):
    """The passes of a service fail because other sessions hold locks. Reported after a few seconds, then at intervals."""

    service: str
    error: str
    contended_s: float
    advice: str = "sexton doctor names the rows and tables that are locked and the sessions that hold them"


class RowLocked(msgspec.Struct, frozen=True):
    """A service has passed over a row for long, because another session holds its lock. Other rows are not affected."""

    row: str
    job_id: UUID | None
    run_id: UUID | None
    locked_s: float  # since the row was first found locked
    session: str  # as far as this role may see it: pid, application, user, client
    transaction_s: float | None  # how long its transaction has been open
    advice: str
    more_count: int = 0  # rows of this kind that the same session holds as well


class TableLocked(msgspec.Struct, frozen=True):
    """A session has locked a table of Sexton, so services wait for it or fail. Each scheduler reports it."""

    table: str  # with the mode of the lock
    locked_s: float  # since it was first found
    session: str  # as far as this role may see it: pid, application, user, client
    transaction_s: float | None  # how long its transaction has been open
    advice: str


class AdvisoryLockTaken(msgspec.Struct, frozen=True):
    """A session that is no service holds an advisory lock of Sexton. Any role that may connect to the database can take it."""

    lock: str
    held_s: float  # since it was first found
    session: str  # as far as this role may see it: pid, application, user, client
    advice: str
    more_count: int = 0  # advisory locks that the same session holds as well
