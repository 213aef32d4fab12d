"""A schedule as it is stored and sent: when a recurring job fires. `check.schedule` makes one from user input. Reading a stored
one does not check it again."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from .cron_text import Dialect
from .zone import Dst, Gap, Overlap

Kind = Literal["cron", "rrule", "every"]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time range without fires; `to` is not included."""

    from_at: datetime = msgspec.field(name="from")
    to_at: datetime = msgspec.field(name="to")


class DstRule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What happens to a wall time that does not exist (`gap`) or exists twice (`overlap`)."""

    gap: Gap = "after"
    overlap: Overlap = "first"


class Jitter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How far a job's fires are shifted, always by the same amount: later, or with `both` earlier or later."""

    max_s: float = msgspec.field(name="max")
    both: bool = False


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one of `cron`, `rrule` and `every_s`. In JSON the names are those of the API: `every`, in seconds."""

    cron: str | None = None
    rrule: str | None = None
    every_s: float | None = msgspec.field(default=None, name="every")
    timezone: str = "UTC"
    dst: DstRule | None = None
    jitter: Jitter | None = None
    start_at: datetime | None = None  # inclusive
    end_at: datetime | None = None  # inclusive
    max_fires: int | None = None
    exclude: tuple[str | Window, ...] = ()
    dialect: Dialect | None = None  # null: not named, and read as cron
    anchor_at: datetime | None = None  # `every` counts from here; an rrule without DTSTART starts here

    @property
    def dst_pair(self) -> Dst:
        return Dst() if self.dst is None else Dst(self.dst.gap, self.dst.overlap)

    @property
    def kind(self) -> Kind:
        if self.cron is not None:
            return "cron"
        return "rrule" if self.rrule is not None else "every"
