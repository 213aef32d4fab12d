"""Compares what a database has with what this release ships: what must be done, and what is rejected. Pure."""

from __future__ import annotations

import msgspec

from sexton.errors import SchemaMismatch

from . import functions as shipped_functions
from . import ledger as ledgers
from . import steps as shipped_steps
from .functions import Function
from .ledger import Ledger
from .release import RELEASE, order
from .steps import Step

_UPGRADE = "upgrade Sexton on this machine to the release that migrated the database"


class Plan(msgspec.Struct, frozen=True):
    is_new: bool  # an empty database, which no session uses yet
    adopted: list[Step]  # of the baseline, found in a database of the previous ledger
    steps: list[Step]  # in the order in which they run
    functions: list[Function]  # applied after the expand steps

    @property
    def is_empty(self) -> bool:
        return not (self.adopted or self.steps or self.functions)


def plan(ledger: Ledger) -> Plan:
    """What `migrate` does now. Rejects a database that this release cannot bring up to date."""
    steps = shipped_steps.known()
    _refuse_unknown(ledger, steps)
    adopted = []
    if not ledger.is_begun and ledger.previous is not None:
        _require_previous(ledger.previous)
        adopted = [step for step in steps if step.is_baseline]
    done = {name for name, row in ledger.steps.items() if row.state != "running"} | {step.name for step in adopted}
    outstanding = [step for step in steps if step.name not in done]
    is_new = not ledger.is_begun and ledger.previous is None
    return Plan(is_new, adopted, outstanding, _functions_to_apply(ledger))


def require(ledger: Ledger) -> None:
    """Rejects a schema that a service of this release cannot run on, in one line that says what to do.

    A newer schema is accepted as long as its steps allow releases as old as this one. Contract steps of this release may be
    outstanding: they only remove what it does not use.
    """
    outstanding = plan(ledger)
    if outstanding.is_new:
        raise SchemaMismatch("this database has no Sexton schema yet; run: sexton migrate")
    if _is_newer(ledger):
        _refuse_removed(ledger)
    lacks = [step.name for step in outstanding.adopted + outstanding.steps if step.phase != "contract"]
    lacks += [f"function {name}" for name in _missing_functions(ledger, outstanding.functions)]
    if lacks:
        more = f" and {len(lacks) - 5} more" if len(lacks) > 5 else ""
        raise SchemaMismatch(f"the schema lacks {', '.join(lacks[:5])}{more}; run: sexton migrate")


def _refuse_unknown(ledger: Ledger, steps: list[Step]) -> None:
    known = {step.name: step for step in steps}
    for row in ledger.steps.values():
        step = known.get(row.name)
        if step is None and order(row.runs_from) > order(RELEASE):
            raise SchemaMismatch(
                f"the schema has the step {row.name}, which needs Sexton {row.runs_from} or newer, and this is {RELEASE}; "
                + _UPGRADE
            )
        if step is not None and row.checksum != step.checksum:
            raise SchemaMismatch(
                f"the step {row.name} was applied in a different form than this release ships; "
                "restore the released file, or report this as a bug"
            )


def _require_previous(found: list[tuple[int, str, str]]) -> None:
    """Only a database with exactly the 21 migrations of the previous ledger has the baseline."""
    wanted = ledgers.previous_migrations()
    for number, name, checksum in found:
        if number > len(wanted):
            raise SchemaMismatch(f"the schema has migration {number:04d}_{name}, which this release does not know; {_UPGRADE}")
        if (number, name, checksum) not in wanted:
            raise SchemaMismatch(
                f"migration {number:04d}_{name} of this database is not the released one; restore the database from a backup "
                "that a released version migrated, or report how it came to differ"
            )
    missing = [number for number, _, _ in wanted if number not in {number for number, _, _ in found}]
    if missing:
        raise SchemaMismatch(
            f"this database has {len(found)} of the {len(wanted)} migrations of the previous release; first bring it up "
            "to date with that release (commit 413f5aa): sexton migrate"
        )


def _functions_to_apply(ledger: Ledger) -> list[Function]:
    """Those whose body in the database is not the one of this release. If a newer release has migrated the database, its bodies
    stay: they also serve the callers of this one."""
    if _is_newer(ledger):
        return []
    current = {row.name: row.checksum for row in ledger.functions}
    return [function for function in shipped_functions.known() if current.get(function.name) != function.checksum]


def _is_newer(ledger: Ledger) -> bool:
    """Whether a newer release has migrated this database."""
    known = {step.name for step in shipped_steps.known()}
    releases = [row.release for row in ledger.steps.values()] + [row.release for row in ledger.functions]
    return any(name not in known for name in ledger.steps) or any(order(release) > order(RELEASE) for release in releases)


def _missing_functions(ledger: Ledger, outstanding: list[Function]) -> list[str]:
    """A body that was applied once and then replaced is not missing: the newer one also serves its callers."""
    applied = {(row.name, row.checksum) for row in ledger.functions}
    return [
        function.name
        for function in outstanding
        if not function.is_removed and (function.name, function.checksum) not in applied
    ]


def _refuse_removed(ledger: Ledger) -> None:
    """A newer release has removed a function that this one calls. This one calls no function that it has superseded itself."""
    current = {row.name: row.checksum for row in ledger.functions}
    for function in shipped_functions.known():
        is_called = function.removed_in is None
        if is_called and current.get(function.name, shipped_functions.DROPPED) == shipped_functions.DROPPED:
            raise SchemaMismatch(f"the schema no longer has the function {function.name}; {_UPGRADE}")
