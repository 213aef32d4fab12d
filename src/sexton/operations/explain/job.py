"""Questions about the job itself: does it exist, has it ended, does its schedule continue, is it paused?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sexton.domain.wording import counted
from sexton.operations.recurring import forecast
from sexton.store.views.evidence import Evidence

from .link import Link
from .wording import at_time, because, error_of


def exists(seen: Evidence) -> Link:
    job, kind = seen.job, "one-time" if seen.plan is None else "recurring"
    by = f" by {job.submitted_by}" if job.submitted_by else ""
    facts = {"kind": kind, "version": job.version, "submitted_at": job.submitted_at, "submitted_by": job.submitted_by}
    return Link("exists", True, f"It is a {kind} job, submitted {at_time(seen, job.submitted_at)}{by}.", facts)


def ended(seen: Evidence) -> Link:
    job, letter = seen.job, seen.letter
    ended = "" if job.ended_at is None else at_time(seen, job.ended_at)
    facts: dict[str, Any] = {"status": job.status, "ended_at": job.ended_at}
    if seen.plan is not None:
        return Link("schedule", False, f"Its schedule ended {ended}: {_over(seen)}.", {**facts, "reason": job.over_reason})
    if job.status == "completed":
        return Link("ended", True, f"It completed {ended}.", {**facts, "execution_id": job.execution_id})
    if job.status == "cancelled":
        reason = seen.history[0].reason if seen.history else None
        return Link("ended", False, f"It was cancelled {ended}{because(reason)}.", {**facts, "reason": reason})
    if letter is None:
        return Link("dead_letter", False, f"It failed {ended}; its dead letter was discarded or has expired.", facts)
    again = f"; it will be replayed {at_time(seen, letter.replay_at)}" if letter.replay_at else ""
    detail = (
        f"It has been in the dead letters since {at_time(seen, letter.buried_at)}, after {counted(letter.attempts, 'attempt')}"
    )
    facts |= {"dead_letter_id": letter.id, "reason": letter.reason, "permanent": letter.permanent, "attempts": letter.attempts}
    if seen.history:
        facts |= error_of(seen.history[0])
    return Link("dead_letter", False, f"{detail}{because(letter.reason)}{again}.", facts)


def _over(seen: Evidence) -> str:
    match seen.plan and seen.plan.over_as:
        case "completed":
            return "it has no further fire"
        case other:
            return (
                f"it was {other}{because(seen.job.over_reason)}"
                if other == "cancelled"
                else seen.job.over_reason or "it failed"
            )


def schedule(seen: Evidence) -> Link:
    plan = seen.plan
    if plan is not None and plan.over_at is not None:
        detail = f"Its schedule ended {at_time(seen, plan.over_at)}: {_over(seen)}; runs planned before continue."
        return Link(
            "schedule", True, detail, {"over_at": plan.over_at, "over_as": plan.over_as, "reason": seen.job.over_reason}
        )
    return Link(
        "schedule",
        True,
        "Its schedule continues.",
        {"planned_until": plan and plan.cursor_at, "plan_at": plan and plan.plan_at},
    )


def doubts(seen: Evidence) -> Iterator[Link]:
    """Of a cron line that other programs read differently."""
    for warning in forecast.doubts(seen.job, after=seen.now):
        yield Link("dialect", True, f"{warning}.", {})


def active(seen: Evidence) -> Link:
    job = seen.job
    if job.status != "paused" and (job.paused_at is None or seen.plan is None):
        return Link("active", True, "It is not paused.", {})
    since = f" since {at_time(seen, job.paused_at)}" if job.paused_at else ""
    by = f" by {job.paused_by}" if job.paused_by else ""
    until = f"; it resumes by itself {at_time(seen, job.resume_at)}" if job.resume_at else ""
    facts = {"paused_at": job.paused_at, "paused_by": job.paused_by, "note": job.note, "resume_at": job.resume_at}
    return Link("active", False, f"It is paused{since}{by}{because(job.note)}{until}.", facts)
