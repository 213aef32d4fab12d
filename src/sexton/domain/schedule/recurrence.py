"""The policies of a recurring job besides its rule: overlapping runs, downtime, pauses. Only what differs from the default is
stored."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

import msgspec

from .catch_up import CatchUp
from .catch_up import Policy as CatchUpPolicy
from .overlap import Overlap


class Recurrence(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    overlap: Overlap = Overlap()
    catch_up: CatchUp = CatchUp()
    on_resume: CatchUpPolicy = "skip"  # what happens to the fires of a pause
    pause_after: int | None = None  # failures in a row after which the job is paused

    @property
    def lanes(self) -> int:
        """How parallel runs are limited: 1 for one at a time, 2 for at most `max_parallel`."""
        return 2 if self.overlap.policy == "parallel" else 1


@lru_cache(maxsize=1024)
def recurrence_of(text: str | None) -> Recurrence:
    return Recurrence() if text is None else msgspec.json.decode(text, type=Recurrence)


def seed_of(tenant: str, name: str | None, job_id: UUID) -> str:
    """The seed of jitter and `H`. For a named schedule it does not depend on the job's id."""
    return str(job_id) if name is None else f"{tenant}/{name}"
