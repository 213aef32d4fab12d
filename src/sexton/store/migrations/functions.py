"""The functions that this release ships: one file each in `store/functions/`, its only body.

A changed body is applied by checksum. A changed signature is a new function with a new name, so that the last release still
finds the old one; the old file then says `-- superseded by: NEW; removed in: RELEASE` and `-- signature: sexton.OLD(types)`.
From that release on the function is no longer created, and `sexton migrate` drops it.

A function that only users call keeps its name: its file says `-- replaces: sexton.NAME(types)`. Two functions of one name with
defaults would be ambiguous, so one transaction replaces the old one with the new one, and roles keep their right to call it.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources

import msgspec

from .release import RELEASE, order

_FOLDER = "sexton.store"
_START = re.compile(r"^CREATE OR REPLACE FUNCTION sexton\.", re.MULTILINE)
_SUPERSEDED = re.compile(r"^-- superseded by: \w+; removed in: (\S+)$", re.MULTILINE)
_REPLACES = re.compile(r"^-- replaces: (sexton\.\w+\(.*\))$", re.MULTILINE)
_SIGNATURE = re.compile(r"^-- signature: (sexton\.\w+\(.*\))$", re.MULTILINE)

DROPPED = ""  # the checksum of a dropped function


class Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of the file
    sql: str  # without the header
    removed_in: str | None = None
    signature: str | None = None
    replaces: tuple[str, ...] = ()  # the signatures that it had

    @property
    def is_removed(self) -> bool:
        return self.removed_in is not None and order(self.removed_in) <= order(RELEASE)

    @property
    def checksum(self) -> str:
        return DROPPED if self.is_removed else hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statement(self) -> str:
        """The SQL that makes the database agree with this release."""
        if self.is_removed:
            return f"DROP FUNCTION IF EXISTS {self.signature};"
        if self.replaces:
            known = ", ".join(f"to_regprocedure('{old}')" for old in self.replaces)
            drops = "\n".join(f"DROP FUNCTION IF EXISTS {old};" for old in self.replaces)
            return _text("replace.sql").format(name=self.name, known=known, drops=drops, new=self.sql)
        return self.sql


@cache
def known() -> list[Function]:
    """The functions that this release ships, by name."""
    folder = resources.files(_FOLDER).joinpath("functions")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [read(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in files]


def read(name: str, text: str) -> Function:
    start = _START.search(text)
    if start is None:
        raise ValueError(f"functions/{name}.sql has no CREATE OR REPLACE FUNCTION sexton.…")
    header = text[: start.start()]
    superseded, signature = (form.search(header) for form in (_SUPERSEDED, _SIGNATURE))
    if (superseded is None) != (signature is None):
        raise ValueError(
            f"functions/{name}.sql: a superseded function names its successor, the release that removes it, and its signature"
        )
    return Function(
        name=name,
        sql=text[start.start() :].strip(),
        removed_in=superseded[1] if superseded else None,
        signature=signature[1] if signature else None,
        replaces=tuple(_REPLACES.findall(header)),
    )


def rights() -> str:
    """The rights of PUBLIC: applied again whenever a function was created."""
    return _text("rights.sql")


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()
