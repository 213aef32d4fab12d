"""The steps that this release ships: one SQL file each, with a header that declares how it runs.

Steps change tables, indexes and triggers, never functions. Their order: all `expand` steps by name, then the functions
(`functions.py`), then all `migrate` steps, then all `contract` steps. README.md describes the header.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal, get_args

import msgspec

BASELINE = "0000_baseline/"  # the schema after the 21 migrations up to commit 413f5aa

Phase = Literal["expand", "migrate", "contract"]
Kind = Literal["sql", "index", "backfill"]

PHASES: tuple[Phase, ...] = get_args(Phase)
_KINDS: tuple[Kind, ...] = get_args(Kind)
_FIELDS = ("phase", "transactional", "locks", "undo", "kind", "runs from", "batch", "total")
_FIELD = re.compile(r"-- ([a-z ]+): (.+)")
_FILE = re.compile(r"\d{4}_\w+\.sql")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sql: str
    phase: Phase
    is_transactional: bool
    locks: str  # what it locks and for how long, for people
    undo: str  # "yes", or "no" and why
    kind: Kind = "sql"
    runs_from: str = "0.1.0"  # the oldest release that can run on the schema once this step is done
    batch: int = 0  # rows of one transaction of a backfill
    total: str = ""  # the query that says how many rows a backfill has to do

    @property
    def checksum(self) -> str:
        """Of the SQL alone, so that comments may change."""
        code = " ".join(re.sub(r"--[^\n]*", "", self.sql).split())
        return hashlib.sha256(code.encode()).hexdigest()

    @property
    def is_baseline(self) -> bool:
        return self.name.startswith(BASELINE)


@cache
def known() -> list[Step]:
    """The steps that this release ships, in the order in which they run."""
    folder = resources.files(__package__)
    found = [read(name, file.read_text(encoding="utf-8")) for name, file in _files(folder)]
    return in_order(found)


def in_order(steps: list[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: (PHASES.index(step.phase), step.name))


def _files(folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if _FILE.fullmatch(entry.name):
            yield entry.name.removesuffix(".sql"), entry
        elif f"{entry.name}/" == BASELINE:
            for file in entry.iterdir():
                yield BASELINE + file.name.removesuffix(".sql"), file


def read(name: str, text: str) -> Step:
    """A step from its file. A missing or unknown line in the header is a mistake of the author."""
    header, _, sql = text.partition("\n\n")
    fields: dict[str, str] = {}
    for line in header.splitlines():
        found = _FIELD.fullmatch(line)
        if found is None or found[1] not in _FIELDS:
            raise ValueError(f'{name}: "{line}" is not a line of the header; the header ends with an empty line')
        fields[found[1]] = found[2].strip()
    for field in ("phase", "transactional", "locks", "undo"):
        if field not in fields:
            raise ValueError(f'{name}: the header has no "{field}"')
    return _step(name, sql, fields)


def _step(name: str, sql: str, fields: dict[str, str]) -> Step:
    phase, kind = fields["phase"], fields.get("kind", "sql")
    if phase not in PHASES or kind not in _KINDS:
        raise ValueError(f"{name}: phase is one of {', '.join(PHASES)}, kind one of {', '.join(_KINDS)}")
    is_transactional = fields["transactional"] == "yes"
    if is_transactional != (kind == "sql"):
        raise ValueError(f"{name}: a step of kind sql is transactional, an index or a backfill is not")
    if (phase == "contract") != ("runs from" in fields):
        raise ValueError(f'{name}: only a contract step says "runs from", the oldest release that can run after it')
    declared = {"locks": fields["locks"], "undo": fields["undo"], "total": fields.get("total", "")}
    if phase == "contract":
        declared["runs_from"] = fields["runs from"]
    batch = int(fields.get("batch", 0))
    return Step(name=name, sql=sql, phase=phase, kind=kind, is_transactional=is_transactional, batch=batch, **declared)
