"""The states of a run, the events that change them, and the table of legal changes. `docs/lifecycle.md` shows it as a picture.

The schema has CHECKs for the states; tests install a trigger made from this table that rejects any other change.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    WAITING = "waiting"  # for its time
    READY = "ready"  # due: any worker that knows the task may claim it
    RUNNING = "running"  # leased to one worker
    PAUSED = "paused"  # by a user, until resumed
    BLOCKED = "blocked"  # by the overlap policy of its job
    PARKED = "parked"  # waiting for a limit, outside the claim index
    QUARANTINED = "quarantined"  # a suspect: only a worker in quarantine may claim it


class Event(StrEnum):
    SUBMITTED = "submitted"
    PROMOTED = "promoted"
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    BURIED = "buried"
    SNOOZED = "snoozed"
    RELEASED = "released"
    LOST = "lost"
    CANCELLED = "cancelled"
    MISSED = "missed"
    REPLAYED = "replayed"
    EDITED = "edited"
    PAUSED = "paused"
    RESUMED = "resumed"
    PLANNED = "planned"
    BLOCKED = "blocked"
    ADMITTED = "admitted"
    PARKED = "parked"
    LET_THROUGH = "let_through"
    SKIPPED = "skipped"
    WITHDRAWN = "withdrawn"


class Status(StrEnum):
    """Of an execution, once it has ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    SNOOZED = "snoozed"
    RELEASED = "released"
    SKIPPED = "skipped"
    MISSED = "missed"
    PAUSED = "paused"


class JobStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"


_W, _R, _X, _P, _B, _L, _Q = (
    RunState.WAITING,
    RunState.READY,
    RunState.RUNNING,
    RunState.PAUSED,
    RunState.BLOCKED,
    RunState.PARKED,
    RunState.QUARANTINED,
)

# (event, from, to); None is "no row": before submission and after the end.
TRANSITIONS: frozenset[tuple[Event, RunState | None, RunState | None]] = frozenset(
    {
        (Event.SUBMITTED, None, _W),
        (Event.SUBMITTED, None, _R),  # due now
        (Event.PROMOTED, _W, _R),
        (Event.CLAIMED, _R, _X),
        (Event.SUCCEEDED, _X, None),
        (Event.RETRIED, _X, _W),
        (Event.RETRIED, _X, _R),  # without delay
        (Event.RETRIED, _W, _R),  # a user asked for the next attempt now
        (Event.BURIED, _X, None),
        (Event.SNOOZED, _X, _W),
        (Event.SNOOZED, _X, _R),
        (Event.RELEASED, _X, _R),
        (Event.LOST, _X, _R),
        (Event.CANCELLED, _X, None),
        (Event.CANCELLED, _W, None),
        (Event.CANCELLED, _R, None),
        (Event.CANCELLED, _P, None),
        (Event.MISSED, _W, None),
        (Event.MISSED, _R, None),
        (Event.MISSED, _P, None),
        (Event.REPLAYED, None, _R),
        (Event.REPLAYED, None, _W),  # of a recurring job: its overlap policy decides
        (Event.EDITED, _W, _R),  # to an earlier time; an edit that keeps the state is not a transition
        (Event.EDITED, _R, _W),
        (Event.PAUSED, _W, _P),
        (Event.PAUSED, _R, _P),
        (Event.RESUMED, _P, _W),
        (Event.RESUMED, _P, _R),
        (Event.PLANNED, None, _W),  # a fire of a schedule, ahead of its time
        (Event.BLOCKED, _W, _B),  # an earlier run of its job is alive
        (Event.ADMITTED, _B, _R),
        (Event.SKIPPED, _W, None),  # by the overlap policy, with a row in the ledger
        (Event.SKIPPED, _B, None),
        (Event.CANCELLED, _B, None),
        (Event.MISSED, _B, None),
        (Event.WITHDRAWN, _W, None),  # its job was paused, edited or ended before it was promoted
        (Event.WITHDRAWN, _R, None),
        (Event.WITHDRAWN, _B, None),
        # A run with a limit becomes parked where a run without one becomes ready.
        (Event.SUBMITTED, None, _L),
        (Event.PROMOTED, _W, _L),
        (Event.PARKED, _R, _L),  # picked by a claim, but its limit had no room
        (Event.LET_THROUGH, _L, _R),
        (Event.RETRIED, _X, _L),
        (Event.RETRIED, _W, _L),
        (Event.SNOOZED, _X, _L),
        (Event.RELEASED, _X, _L),
        (Event.LOST, _X, _L),
        (Event.CANCELLED, _L, None),
        (Event.MISSED, _L, None),
        (Event.REPLAYED, None, _L),
        (Event.EDITED, _W, _L),
        (Event.EDITED, _L, _W),
        (Event.PAUSED, _L, _P),
        (Event.RESUMED, _P, _L),
        (Event.ADMITTED, _B, _L),
        (Event.WITHDRAWN, _L, None),
        # A run that was lost twice in a row: rule "suspects apart".
        (Event.LOST, _X, _Q),
        (Event.RELEASED, _X, _Q),
        (Event.SNOOZED, _X, _Q),
        (Event.CLAIMED, _Q, _X),
        (Event.CANCELLED, _Q, None),
        (Event.MISSED, _Q, None),
        (Event.PAUSED, _Q, _P),
        (Event.RESUMED, _P, _Q),
    }
)


def legal(before: RunState | None, after: RunState | None) -> frozenset[Event]:
    """The events that may lead from one state to the other; empty means the change is forbidden."""
    return frozenset(event for event, source, target in TRANSITIONS if (source, target) == (before, after))
