"""Questions about its runs: how did the last one end, is one running, is one due, does one wait for another?"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import msgspec

from sexton.store.views.evidence import Evidence, LiveRun, Past

from .link import Link
from .wording import at_time, because, error_of, how_it_came, in_span, said_by

_BLOCKER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_LATE = timedelta(seconds=5)  # rule "any node does overdue work": after this time any node should have promoted a due run
_DID_NOT_START = ("skipped", "missed", "paused")
_WENT_WRONG = ("failed", "timed_out", "lost", "cancelled")


def last_fire(seen: Evidence, last: Past) -> Link:
    facts = {"status": last.status, "fire_at": last.fire_at, "reason": last.reason, "execution_id": last.id}
    if last.status in _DID_NOT_START:
        return _did_not_start(seen, last, facts)
    facts |= error_of(last)
    facts["origin"] = last.origin
    what = f"Its last try, of the fire of {at_time(seen, last.fire_at)}{how_it_came(seen, last.run_id, last.origin)},"
    if last.status not in _WENT_WRONG:
        return Link("last_fire", True, f"{what} {last.status} {at_time(seen, last.ended_at)}.", facts)
    buried = ""
    if seen.letter is not None and seen.letter.id == last.id:
        facts["dead_letter_id"], buried = seen.letter.id, "; it is in the dead letters"
    how = "was cancelled" if last.status == "cancelled" else last.status.replace("_", " ")
    return Link("last_fire", last.status == "cancelled", f"{what} {how}{because(said_by(last))}{buried}.", facts)


def _did_not_start(seen: Evidence, last: Past, facts: dict[str, Any]) -> Link:
    gap, when = last.gap, at_time(seen, last.fire_at)
    facts = facts | gap
    blocker = _BLOCKER.search(last.reason or "")
    if blocker is not None:
        facts["run_in_the_way"] = blocker[0]
    if not gap:
        return Link("last_fire", False, f"Its fire of {when} was {last.status}{because(last.reason)}.", facts)
    until = at_time(seen, msgspec.convert(gap["last"], datetime))
    which = f"fires from {when} to {until}" if gap["count"] != 1 else f"fire of {when}"
    told = f"; it was noticed {at_time(seen, last.ended_at)}, when planning resumed" if last.status == "missed" else ""
    return Link("last_fire", False, f"Its {which} did not run{because(last.reason)}{told}.", facts)


def running(seen: Evidence, run: LiveRun) -> Link:
    where = run.worker_name or str(run.worker_id)
    facts = {
        "run_id": run.id,
        "worker_id": run.worker_id,
        "worker": run.worker_name,
        "started_at": run.claimed_at,
        "attempt": run.attempt,
    }
    since = "" if run.claimed_at is None else f" since {at_time(seen, run.claimed_at)}"
    detail = f"It runs{since} on {where}, attempt {run.attempt}{how_it_came(seen, run.id, run.origin)}"
    if run.silent_since is not None:
        detail += f"; that worker is silent since {at_time(seen, run.silent_since)}"
        if seen.fleet.node_count == 0:
            detail += ", and no scheduler is alive to give the run to another"
    if run.cancel_requested_at is not None:
        detail += f"; it was asked to stop {at_time(seen, run.cancel_requested_at)}"
    return Link(
        "running",
        True,
        f"{detail}.",
        {**facts, "cancel_requested_at": run.cancel_requested_at, "silent_since": run.silent_since},
    )


def due(seen: Evidence, run: LiveRun | None) -> Link:
    if run is None:
        plan_at = seen.plan and seen.plan.plan_at
        if plan_at is None:
            return Link(
                "due",
                False,
                "No fire of it is planned, and no planner is due to plan one; the guardian repairs that every minute.",
                {},
            )
        late = "should have been planned" if plan_at < seen.now - _LATE else "is to be planned"
        return Link("due", False, f"No fire of it is planned; it {late} {at_time(seen, plan_at)}.", {"plan_at": plan_at})
    facts: dict[str, Any] = {
        "run_id": run.id,
        "state": run.state,
        "fire_at": run.fire_at,
        "due_at": run.due_at,
        "origin": run.origin,
    }
    beside = how_it_came(seen, run.id, run.origin)
    if run.state == "waiting" and run.token > 0:
        last = next((one for one in seen.history if one.run_id == run.id), None)
        facts |= {"attempt": run.attempt} | ({} if last is None else error_of(last))
        how = (
            f"was snoozed{because(last.reason)}"
            if last is not None and last.status == "snoozed"
            else f"failed{because(said_by(last))}"
        )
        return Link(
            "due",
            False,
            f"Attempt {run.attempt}{beside} {how}; it is tried again {at_time(seen, run.due_at)}{in_span(seen, run.due_at)}.",
            facts,
        )
    if run.due_at > seen.now:
        what = "It is" if seen.plan is None else f"Its next fire{beside} is"
        return Link("due", False, f"{what} due {at_time(seen, run.due_at)}{in_span(seen, run.due_at)}.", facts)
    return Link("due", True, f"It{beside} has been due since {at_time(seen, run.due_at)}.", facts)


def overlap(seen: Evidence, run: LiveRun) -> Link:
    others = [one for one in seen.live if one.id != run.id and (one.state in ("ready", "running") or one.token > 0)]
    which = f": {others[0].id}, {others[0].state}" if others else ""
    detail = f"It waits for an earlier run of the same job to end{which}."
    return Link("overlap", False, detail, {"runs_in_the_way": [one.id for one in others]})
