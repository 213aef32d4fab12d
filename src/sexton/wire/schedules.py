"""When a recurring job fires, and how it behaves around that, as callers write it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sexton.domain.schedule.catch_up import CatchUp, catch_up
from sexton.domain.schedule.catch_up import Policy as CatchUpPolicy
from sexton.domain.schedule.dialects import NamedDialect
from sexton.domain.schedule.overlap import Overlap, overlap
from sexton.domain.schedule.overlap import Policy as OverlapPolicy
from sexton.domain.schedule.zone import Gap as DstGap
from sexton.domain.schedule.zone import Overlap as DstOverlap

from .kinds import Instant, Request, Rule, Span, Word


class DstRule(Request, frozen=True, kw_only=True):
    """How to treat a wall time that does not exist (`gap`) or exists twice (`overlap`)."""

    gap: DstGap = "after"
    overlap: DstOverlap = "first"


class JitterRule(Request, frozen=True, kw_only=True):
    """A job is always moved by the same span: later, or with `both` earlier or later."""

    max: Span
    both: bool = False


class Stretch(Request, frozen=True, kw_only=True):
    """A range of time without fires, `to` not included."""

    from_at: Instant = msgspec.field(name="from")
    to_at: Instant = msgspec.field(name="to")


class Schedule(Request, frozen=True, kw_only=True):
    """The rule of a recurring job: exactly one of `cron`, `rrule` and `every`, and its limits."""

    cron: Rule | None = None
    rrule: Rule | None = None
    every: Span | None = None
    timezone: Word | None = None
    dst: DstRule | None = None
    jitter: Span | JitterRule | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None
    max_fires: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    exclude: Annotated[tuple[Word | Stretch, ...], Meta(max_length=500)] | None = None
    dialect: NamedDialect | None = None
    anchor_at: Instant | None = None

    @property
    def is_recurring(self) -> bool:
        return self.cron is not None or self.rrule is not None or self.every is not None

    def rule(self) -> dict[str, Any]:
        """The given fields, as `domain.schedule.schedule` takes them."""
        given = {field: value for field in RULE_FIELDS if (value := getattr(self, field)) is not None}
        return {field: plain_rule(value) for field, value in given.items()}


RULE_FIELDS = Schedule.__struct_fields__


def plain_rule(value: Any) -> Any:
    match value:
        case DstRule():
            return {"gap": value.gap, "overlap": value.overlap}
        case JitterRule():
            return {"max": value.max, "both": value.both}
        case Stretch():
            return {"from": value.from_at, "to": value.to_at}
        case tuple():
            return [plain_rule(one) for one in value]
        case _:
            return value


class OverlapRule(Request, frozen=True, kw_only=True):
    """What to do with a fire while an earlier run is alive."""

    policy: OverlapPolicy | None = None
    max_queued: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    max_parallel: Annotated[int, Meta(ge=1, le=10_000)] | None = None

    def to_domain(self) -> Overlap:
        return overlap(self.policy or "skip", **_given(max_queued=self.max_queued, max_parallel=self.max_parallel))


class CatchUpRule(Request, frozen=True, kw_only=True):
    """What to do with fires that were not planned in time. Fields that you leave out have their default: the latest within 30
    minutes."""

    policy: CatchUpPolicy | None = None
    window: Span | None = None
    max_catch_up: Annotated[int, Meta(ge=1, le=1_000)] | None = None

    def to_domain(self) -> CatchUp:
        return catch_up(self.policy or "latest", **_given(window=self.window, max_catch_up=self.max_catch_up))


def overlap_of(given: OverlapPolicy | OverlapRule | None) -> Overlap:
    return given.to_domain() if isinstance(given, OverlapRule) else overlap(given or "skip")


def catch_up_of(given: CatchUpPolicy | CatchUpRule | None) -> CatchUp:
    return given.to_domain() if isinstance(given, CatchUpRule) else catch_up(given or "latest")


def _given(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
