"""Computes how long the service was unavailable after a kill, from what callers and handlers saw. Pure.

A backend that has not yet noticed the death of its postmaster may still acknowledge a job, and a new primary may answer once
and then be silent again. So the outage ends after the last silence, not with the first answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from .load import Call

SILENCE_S = 1.5  # in a stream of a hundred calls per second
STEADY_S = 4.0  # without a silence: the outage is over


class Recovery(NamedTuple):
    """Seconds since the kill."""

    accepted_s: float  # the first acknowledged submission after which there was no silence
    started_s: float  # the first start of a run that was submitted and acknowledged after that

    @property
    def recovered_s(self) -> float:
        return max(self)


def recovery(killed_at: float, now: float, calls: Sequence[Call], first_start_at: Mapping[UUID, float]) -> Recovery | None:
    """Returns `None` while the outage lasts."""
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
