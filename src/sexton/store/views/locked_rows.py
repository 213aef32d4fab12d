"""Rows and advisory locks of Sexton that another session holds, and that session, read from the rows themselves and from
PostgreSQL's own views. It never waits for a lock and takes none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from sexton.store.database import APPLICATION_NAMES, Connection
from sexton.store.sql import statements

KEY_HELD_S = 10.0  # an advisory lock of a service is held for less
LOOKED_LIMIT = 5_000  # rows of each kind, while a transaction is open that could hold one

_SQL = statements(__name__)
_LEADERSHIP = 7308  # the class of the locks of store.postgres.advisory_locks; the others are of class 7307
_PROMOTE = 100  # plus the partition
_KEYS = {0: "migrations", 2: "declared schedules", 3: "migrations", 4: "parked runs"}


class Holder(msgspec.Struct, frozen=True):
    """A session with an open transaction, or a prepared transaction. What this role may not see is None."""

    xid: str
    pid: int | None
    gid: str | None  # of a prepared transaction
    application: str | None
    user: str | None
    client: str | None
    age_s: float | None

    @property
    def words(self) -> str:
        if self.pid is None:
            return f"the prepared transaction {self.gid!r}"
        facts = [self.application, self.user and f"user {self.user}", self.client and f"from {self.client}"]
        known = ", ".join(fact for fact in facts if fact)
        return f"session {self.pid} ({known})" if known else f"session {self.pid}"

    @property
    def advice(self) -> str:
        return f"it continues when that transaction ends; {self.end}"

    @property
    def end(self) -> str:
        end = f"SELECT pg_terminate_backend({self.pid})" if self.pid is not None else f"ROLLBACK PREPARED '{self.gid}'"
        return f"if it was forgotten, end it: {end}"


class HeldKey(msgspec.Struct, frozen=True):
    """An advisory lock of Sexton that no service holds."""

    key_class: int
    number: int
    may_serve: bool  # the role of the session has the rights of a service, so the services leave the lock to it
    holder: Holder

    @property
    def partition(self) -> int | None:
        return self.number if self.key_class == _LEADERSHIP else self.number - _PROMOTE if self.number >= _PROMOTE else None

    @property
    def key(self) -> str:
        return f"advisory {self.key_class} {self.number} {self.holder.pid or self.holder.gid}"

    @property
    def words(self) -> str:
        of = _KEYS.get(self.number, "partition") if self.partition is None else f"partition {self.partition}"
        return f"the advisory lock ({self.key_class}, {self.number}) of {of}"

    @property
    def advice(self) -> str:
        """Rule "no lock that others may take": a role with fewer rights delays no service for long."""
        if self.may_serve:
            return f"the services leave this work to that session; {self.holder.end}"
        if self.holder.application in APPLICATION_NAMES:
            refused = f"the role {self.holder.user} may not change sexton.runs: if it is that of the services, grant it"
            return f"{refused}; {self.holder.end}"
        return f"the services go on without it; {self.holder.end}"


class LockedRow(msgspec.Struct, frozen=True):
    kind: str  # schedule, run, limit, queue, lock: a row of sexton.locks
    name: str | None
    job_id: UUID | None
    run_id: UUID | None
    holder: Holder

    @property
    def key(self) -> str:
        """The same for the same row."""
        return f"{self.kind} {self.run_id or self.job_id or self.name}"

    @property
    def words(self) -> str:
        match self.kind:
            case "schedule":
                return f"schedule {self.name!r} ({self.job_id})" if self.name else f"schedule {self.job_id}"
            case "run":
                return f"run {self.run_id} of job {self.job_id} (task {self.name!r})"
            case "lock":
                return f"the lock of {self.name}"
            case _:
                return f"{self.kind} {self.name!r}"


class Look(msgspec.Struct, frozen=True):
    holders: dict[str, Holder]
    keys: list[HeldKey]


async def holders(connection: Connection, *, now: datetime | None = None) -> dict[str, Holder]:
    """Every open transaction of another session that has written or locked something, by its id."""
    return (await look(connection, now=now)).holders


async def look(connection: Connection, *, now: datetime | None = None, key_held_s: float = KEY_HELD_S) -> Look:
    """The open transactions, and the advisory locks of Sexton that no service holds. One statement."""
    rows = await connection.fetch(_SQL["sessions"], now, key_held_s)
    seen = [(row, Holder(*list(row)[: len(Holder.__struct_fields__)])) for row in rows]
    return Look(
        {holder.xid: holder for row, holder in seen if row["key"] is None},
        [HeldKey(row["key_class"], row["key"], row["may_serve"], holder) for row, holder in seen if row["key"] is not None],
    )


async def due(connection: Connection, open_now: Mapping[str, Holder], *, until: datetime | None = None) -> list[LockedRow]:
    """Rows that a service would change by then (now, by default), if none of these transactions held them."""
    if not open_now:
        return []
    return _held(await connection.fetch(_SQL["due"], until, list(open_now), LOOKED_LIMIT), open_now)


async def of_job(connection: Connection, job_id: UUID, *, queue: str, limit_key: str | None) -> list[LockedRow]:
    rows = await connection.fetch(_SQL["of_job"], job_id, queue, limit_key)
    return _held(rows, await holders(connection)) if rows else []


async def keys_of(connection: Connection, partition: int) -> list[HeldKey]:
    """Advisory locks of a partition that the services leave to another session."""
    return [key for key in (await look(connection)).keys if key.may_serve and key.partition == partition]


def _held(rows: Sequence[Any], open_now: Mapping[str, Holder]) -> list[LockedRow]:
    return [
        LockedRow(row["kind"], row["name"], row["job_id"], row["run_id"], holder)
        for row in rows
        if (holder := _holder(row["xids"], open_now)) is not None
    ]


def _holder(xids: Collection[str], open_now: Mapping[str, Holder]) -> Holder | None:
    return next((open_now[xid] for xid in xids if xid in open_now), None)
