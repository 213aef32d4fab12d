"""Index steps: built concurrently, so that no writer waits for them, and resumable.

PostgreSQL cannot build an index of a partitioned table concurrently: the index is created ONLY on the parent, concurrently on
each partition, and then attached. A build that broke off leaves an invalid index, which is dropped and built again. Valid
indexes stay.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from sexton.errors import SchemaMismatch
from sexton.store.database import Connection, Postgres, Session, connect

from .patience import Patience
from .reports import Progressed
from .steps import Step

_DEFINITION = re.compile(r"CREATE (UNIQUE )?INDEX (\w+) ON sexton\.(\w+) (.+?);?", re.DOTALL)
_MAX_NAME = 63
_IS_PARTITIONED = """\
SELECT relkind = 'p' FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relname = $1"""
_IS_VALID = """\
SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = 'sexton'::regnamespace AND c.relname = $1"""
_PARTITIONS = """\
SELECT t.relname FROM pg_inherits p JOIN pg_class t ON t.oid = p.inhrelid
WHERE p.inhparent = to_regclass('sexton.' || $1) ORDER BY t.relname"""
_UNATTACHED = """\
SELECT t.relname FROM pg_inherits p JOIN pg_class t ON t.oid = p.inhrelid
WHERE p.inhparent = to_regclass('sexton.' || $1) AND NOT EXISTS (
  SELECT FROM pg_index i JOIN pg_inherits a ON a.inhrelid = i.indexrelid
  WHERE i.indrelid = t.oid AND a.inhparent = to_regclass('sexton.' || $2))
ORDER BY t.relname"""


class Index(msgspec.Struct, frozen=True):
    name: str
    table: str
    rest: str  # columns and condition
    unique: str = ""

    def create(self, on: str, name: str | None = None, how: str = "") -> str:
        return f"CREATE {self.unique}INDEX {how}{name or self.name} ON {on} {self.rest}"

    def part(self, partition: str) -> str:
        """The name of the index of one partition: the same at every try."""
        name = f"{partition}_{self.name}"
        if len(name) <= _MAX_NAME:
            return name
        return f"{name[: _MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def index_of(step: Step) -> Index:
    found = _DEFINITION.fullmatch(re.sub(r"--[^\n]*", "", step.sql).strip())
    if found is None:
        raise ValueError(f"{step.name}: an index step is one statement: CREATE [UNIQUE] INDEX name ON sexton.table (…)")
    return Index(found[2], found[3], found[4], found[1] or "")


def require_direct(step: Step, database: Postgres) -> None:
    """CREATE INDEX CONCURRENTLY and its settings need a session (rule "session state only on direct connections")."""
    if not database.direct:
        raise SchemaMismatch(
            f"{step.name} builds an index concurrently, which needs a direct connection; "
            "set SEXTON_DIRECT_URL to the PostgreSQL server itself and run again: sexton migrate"
        )


async def build(step: Step, patience: Patience) -> None:
    index = index_of(step)
    raw = await connect(patience.database.url, server_settings={"application_name": "sexton migrate"})
    try:
        session = Session(raw)
        # A concurrent build blocks no reader and no writer, neither while it waits for old transactions nor while it builds.
        await session.execute(f"SET statement_timeout = 0; SET lock_timeout = '{patience.pace.patience_s}s'")
        ((is_partitioned,),) = await session.fetch(_IS_PARTITIONED, index.table)
        if is_partitioned:
            await _build_partitioned(step, index, session, patience)
        else:
            await _build_one(step.name, index, session, patience, on=index.table, name=index.name)
    finally:
        await raw.close(timeout=5)


async def _build_partitioned(step: Step, index: Index, session: Session, patience: Patience) -> None:
    if await _validity(session, index.name) is None:
        await _quickly(step.name, index.create(f"ONLY sexton.{index.table}"), patience)
    while partitions := [row[0] for row in await session.fetch(_UNATTACHED, index.table, index.name)]:
        total = len(await session.fetch(_PARTITIONS, index.table))
        for left, partition in zip(range(len(partitions) - 1, -1, -1), partitions, strict=True):
            part = index.part(partition)
            await _build_one(step.name, index, session, patience, on=partition, name=part)
            await _quickly(step.name, f"ALTER INDEX sexton.{index.name} ATTACH PARTITION sexton.{part}", patience)
            patience.tell(Progressed(step.name, total - left, total, "indexes"))


async def _build_one(what: str, index: Index, session: Session, patience: Patience, *, on: str, name: str) -> None:
    ((pid,),) = await session.fetch("SELECT pg_backend_pid()")

    async def work() -> None:
        is_valid = await _validity(session, name)
        async with patience.watch(pid):
            if is_valid is False:
                await session.execute(f"DROP INDEX CONCURRENTLY sexton.{name}", timeout_s=_UNLIMITED_S)
            if not is_valid:
                await session.execute(index.create(f"sexton.{on}", name, "CONCURRENTLY "), timeout_s=_UNLIMITED_S)

    await patience.insist(what, work)


_UNLIMITED_S = 7 * 24 * 3600.0


async def _quickly(what: str, statement: str, patience: Patience) -> None:
    async def work() -> None:
        async with patience.transaction() as session:
            await session.execute(statement)

    await patience.insist(what, work)


async def _validity(connection: Connection, name: str) -> bool | None:
    """None: there is no index of that name."""
    rows: list[Any] = await connection.fetch(_IS_VALID, name)
    return bool(rows[0][0]) if rows else None


async def script(step: Step, connection: Connection) -> str:
    """The statements of a build from the start, for a database administrator: none of them may run inside a transaction."""
    index = index_of(step)
    rows = await connection.fetch(_IS_PARTITIONED, index.table)
    if not rows or not rows[0][0]:
        return index.create(f"sexton.{index.table}", how="CONCURRENTLY ") + ";"
    lines = [index.create(f"ONLY sexton.{index.table}") + ";"]
    for (partition,) in await connection.fetch(_PARTITIONS, index.table):
        part = index.part(partition)
        lines.append(index.create(f"sexton.{partition}", part, "CONCURRENTLY ") + ";")
        lines.append(f"ALTER INDEX sexton.{index.name} ATTACH PARTITION sexton.{part};")
    return "\n".join(lines)
