"""Tables of Sexton that another session has locked (`LOCK TABLE`, DDL), and that session, from PostgreSQL's own views only.
It needs no table of Sexton, so it answers while they are locked. It never waits for a lock and takes none on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from sexton.store.database import APPLICATION_NAMES, Connection
from sexton.store.sql import statements

from .locked_rows import Holder

HELD_S = 2.0  # a migration, or the end of an old partition, holds a table for less
NAMED_LIMIT = 3

_SQL = statements(__name__)
_DAY = re.compile(r"_\d{8}$")  # of the partition of a day
_WORDS = re.compile(r"(?<!^)(?=[A-Z])")


class LockedTables(msgspec.Struct, frozen=True):
    """What one session, or one prepared transaction, keeps the services from."""

    holder: Holder
    names: list[str]
    mode: str | None  # as in pg_locks; none: it holds something else that a session with a lock on the table waits for
    stops_reading: bool

    @property
    def words(self) -> str:
        names = [name for name in self.names if (whole := _DAY.sub("", name)) == name or whole not in self.names]
        named = " and ".join(f"sexton.{name}" for name in names[:NAMED_LIMIT])
        more = len(names) - NAMED_LIMIT
        return named + (f" and {more:,} more" if more > 0 else "") + (f" in {self.mode_words} mode" if self.mode else "")

    @property
    def mode_words(self) -> str:
        """As `LOCK TABLE` spells it."""
        return " ".join(_WORDS.split((self.mode or "").removesuffix("Lock"))).upper()

    @property
    def said(self) -> str:
        age_s = self.holder.age_s
        since = "" if age_s is None else f" for up to {max(age_s, 0.0):,.0f} s"
        return f"{self.said_briefly}{since}"

    @property
    def said_briefly(self) -> str:
        """The same for as long as the session holds the lock."""
        verb = "has locked" if self.mode else "holds up a session that waits for"
        return f"{self.holder.words} {verb} {self.words}"

    @property
    def advice(self) -> str:
        return f"the services continue when that transaction ends; {self.holder.end}"

    @property
    def is_lasting(self) -> bool:
        return self.holder.age_s is None or self.holder.age_s >= HELD_S


async def look(connection: Connection, *, now: datetime | None = None) -> Sequence[LockedTables]:
    """The sessions that are not Sexton's own, the longest transaction first."""
    rows = await connection.fetch(_SQL["holders"], now, list(APPLICATION_NAMES))
    size = len(Holder.__struct_fields__)
    return [LockedTables(Holder(*list(row)[:size]), *list(row)[size:]) for row in rows]


async def lasting(connection: Connection) -> Sequence[LockedTables]:
    """Those that have been open for longer than a moment."""
    return [one for one in await look(connection) if one.is_lasting]
