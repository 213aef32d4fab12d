"""Stores how far a worker has taken the runs of each tenant. The next claim may begin there, and need not scan the dead index
entries of all earlier runs. After 100,000 runs, or while a session holds an old snapshot, that scan takes longer than the claim
itself. A promoter does the same with due runs.

A cursor does not promise that nothing is behind it: a long transaction commits an older run later, a limit releases a run, or
another worker gives one back. So a claim that finds too few runs looks from the beginning at once (`sexton.claim_runs`). One
that finds enough does so after a while. A worker that found a run behind a cursor continues to look there (`Looking`). If such
a look is slow, it becomes rare, whatever is found ahead of the cursors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Protocol
from uuid import UUID

from .duty_cycle import DutyCycle

CURSOR_AFTER = 100  # runs of a tenant: fewer leave few dead entries behind
TENANTS_LIMIT = 64  # of a queue and lane: with more, each leaves few dead entries behind
LOOK_AGAIN_S = 0.1
DEAR_S = 0.1  # a look from the beginning that takes longer is slow; under load, a claim may take half of that anyway

Cursor = tuple[datetime, UUID]  # due time and id of a run: the order in which a tenant's are taken


class Queued(Protocol):
    """Where a claimed run waited."""

    @property
    def queue(self) -> str: ...
    @property
    def lane(self) -> int: ...
    @property
    def tenant(self) -> str: ...


class Taken(Queued, Protocol):
    """What of a claimed run counts for the cursors."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def due_at(self) -> datetime: ...


class ClaimCursors:
    def __init__(self) -> None:
        self._passed: dict[tuple[str, int], dict[str, tuple[int, Cursor]]] = {}  # by tenant: how many were taken, and the last

    def note(self, claimed: Sequence[Taken]) -> bool:
        """Records the runs of a claim, in order. Returns whether some of them were behind a cursor."""
        was_behind = False
        counts = Counter((run.queue, run.lane, run.tenant) for run in claimed)
        first = {(run.queue, run.lane, run.tenant): run for run in reversed(claimed)}
        last = {(run.queue, run.lane, run.tenant): run for run in claimed}
        for whose, count in counts.items():
            queue, lane, tenant = whose
            passed = self._passed.setdefault((queue, lane), {})
            before, cursor = passed.get(tenant, (0, None))
            was_behind |= cursor is not None and _place(first[whose]) <= cursor
            passed[tenant] = (before + count, _place(last[whose]))
            if len(passed) > TENANTS_LIMIT:
                passed.clear()
        return was_behind

    def of(self, queue: str, lane: int) -> dict[str, Cursor]:
        passed = self._passed.get((queue, lane), {})
        return {tenant: cursor for tenant, (count, cursor) in passed.items() if count >= CURSOR_AFTER}


def _place(run: Taken) -> Cursor:
    return run.due_at, run.run_id


class Look(Enum):
    WHOLE = auto()  # from the beginning
    FROM_CURSORS = auto()  # and from the beginning if that finds too few
    AHEAD = auto()  # only ahead of the cursors


class WholeLooks:
    """The looks from the beginning. Two workers that read the same runs share them: one look serves both."""

    def __init__(self) -> None:
        self._duty_cycle = DutyCycle(LOOK_AGAIN_S)
        self._beyond_s = 0.0  # the time of the last look without its round trip
        self._began_s = float("-inf")

    def takes_turn(self, now_s: float) -> bool:
        """Whether a look is due and no other one is under way. If so, the caller must do it."""
        is_under_way = now_s - self._began_s < LOOK_AGAIN_S + 2 * self._beyond_s  # a look that failed must not block the next
        if is_under_way or not self._duty_cycle.is_due(now_s):
            return False
        self._began_s = now_s
        return True

    @property
    def are_expensive(self) -> bool:
        return self._duty_cycle.took_s > DEAR_S

    def note(self, beyond_s: float, ended_s: float) -> None:
        # One slow answer proves nothing: a connection, the server or this process may have paused. To stay ahead of the cursors
        # by mistake would ignore runs that were lost or released by a limit, for twenty times as long.
        self._duty_cycle.note(ended_s - min(beyond_s, self._beyond_s), ended_s)
        self._beyond_s = beyond_s


class Looking:
    """When to begin at a cursor, and when at the beginning."""

    def __init__(self, whole_looks: WholeLooks | None = None) -> None:
        self._whole_looks = whole_looks or WholeLooks()
        self._is_enough_ahead = False
        self._way_s = 0.0  # the time of the last claim that only looked ahead: the round trip, on a busy machine

    def next(self, now_s: float) -> Look:
        if self._whole_looks.takes_turn(now_s):
            return Look.WHOLE
        if self._whole_looks.are_expensive:
            return Look.AHEAD
        return Look.FROM_CURSORS if self._is_enough_ahead else Look.WHOLE

    def note(self, look: Look, began_s: float, ended_s: float, *, is_full: bool, was_behind: bool) -> None:
        """`is_full`: it found enough runs, as far as it looked; `was_behind`: some of them behind a cursor."""
        if look is Look.WHOLE or (look is Look.FROM_CURSORS and not is_full):
            self._whole_looks.note(max(0.0, ended_s - began_s - self._way_s), ended_s)
        else:
            self._way_s = ended_s - began_s
        self._is_enough_ahead = is_full and not (look is Look.WHOLE and was_behind)
