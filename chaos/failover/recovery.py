"""How long the service was away after a kill, from what callers and handlers saw; pure.

A backend that has not yet noticed its postmaster's death may still acknowledge for a moment, and a new primary may answer once
and fall silent again. So the outage ends with the last silence, not with the first word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from .load import Call

SILENCE_S = 1.5  # of a stream of a hundred calls a second
STEADY_S = 4.0  # without a silence: it is over


class Recovery(NamedTuple):
    """Seconds since the kill."""

    accepted_s: float  # an acknowledged submission that no silence followed
    started_s: float  # a start of a run submitted after the kill and acknowledged since then

    @property
    def recovered_s(self) -> float:
        return max(self)


def recovery(killed_at: float, now: float, calls: Sequence[Call], first_start_at: Mapping[UUID, float]) -> Recovery | None:
    """`None` as long as it is not over."""
    heard = sorted(call.acknowledged_at for call in calls if call.acknowledged_at > killed_at)
    silences = [later for earlier, later in pairwise([killed_at, *heard]) if later - earlier > SILENCE_S]
    if not heard or now - heard[-1] > SILENCE_S:
        return None
    accepted_at = silences[-1] if silences else heard[0]
    starts = [
        first_start_at[job_id]
        for call in calls
        if call.sent_at > killed_at and call.acknowledged_at >= accepted_at
        for job_id in call.job_ids
        if job_id in first_start_at
    ]
    if not starts or now - accepted_at < STEADY_S:
        return None
    return Recovery(accepted_at - killed_at, min(starts) - killed_at)
