"""The question whether another session has locked a row that a service needs to go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sexton.store.views.evidence import Evidence, LiveRun
from sexton.store.views.locked_rows import Holder, LockedRow
from sexton.store.views.locked_tables import LockedTables

from .link import Link
from .wording import span

BRIEF_S = 2.0  # a claim, a report or an edit holds a row for less


def locked_tables(tables: LockedTables) -> Link:
    """It stops all jobs, so it comes before all other questions."""
    return Link("locked", False, f"{tables.said}; {tables.advice}.", {"tables": tables.names, **_holder(tables.holder)})


def locked(seen: Evidence, run: LiveRun | None) -> Iterator[Link]:
    """Nothing if no row is locked for longer than a moment."""
    for key in seen.keys[:1]:
        said = f"The lock of its partition is held by {key.holder.words}; its fires continue when that session ends."
        yield Link("locked", False, said, {"row": key.words} | ({} if key.holder.pid is None else {"pid": key.holder.pid}))
    held = [row for row in seen.locked if row.holder.age_s is None or row.holder.age_s >= BRIEF_S]
    if not held:
        return
    row = next((one for one in held if _is_needed(seen, run, one)), held[0])
    holder = row.holder
    opened = "" if holder.age_s is None else f", whose transaction has been open for {span(holder.age_s)}"
    what = {"schedule": "row", "run": f"run {row.run_id}", "lock": "partition"}.get(row.kind, f"{row.kind} {row.name!r}")
    continues = {"schedule": "the schedule continues", "lock": "its fires continue"}.get(row.kind, "it continues")
    yield Link(
        "locked",
        not _is_needed(seen, run, row),
        f"Its {what} is locked by {holder.words}{opened}; {continues} when that ends.",
        _facts(row),
    )


def _is_needed(seen: Evidence, run: LiveRun | None, row: LockedRow) -> bool:
    """Whether a service would change the row now."""
    if row.kind == "schedule":
        plan_at = seen.plan and seen.plan.plan_at
        return run is None or (plan_at is not None and plan_at <= seen.now)
    return run is not None and run.due_at <= seen.now


def _facts(row: LockedRow) -> dict[str, Any]:
    return {"row": row.words, **_holder(row.holder)}


def _holder(holder: Holder) -> dict[str, Any]:
    known = {
        "pid": holder.pid,
        "prepared": holder.gid,
        "application": holder.application,
        "user": holder.user,
        "client": holder.client,
        "transaction_s": holder.age_s,
    }
    return {name: value for name, value in known.items() if value is not None}
