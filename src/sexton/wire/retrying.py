"""The retry policy of a run, as callers write it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid
from sexton.domain.retry import Backoff, Retry

from .kinds import Request, Span


class RetryPolicy(Request, frozen=True, kw_only=True):
    """Fields that you leave out have their default: five attempts, exponential from 30 s to 30 min, jitter 25 %."""

    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    backoff: Backoff | None = None
    base: Span | None = None
    factor: Annotated[float, Meta(ge=1, le=1000)] | None = None
    max: Span | None = None
    jitter: Annotated[float, Meta(ge=0, le=0.25)] | None = None
    delays: tuple[Span, ...] | None = None
    replays: Annotated[int, Meta(ge=0, le=1000)] | None = None
    replay_after: Span | None = None

    def to_domain(self) -> Retry:
        given = {
            "max_attempts": self.max_attempts,
            "backoff": self.backoff or ("list" if self.delays else None),
            "base_s": _seconds("retry.base", self.base),
            "factor": self.factor,
            "max_s": _seconds("retry.max", self.max),
            "jitter": self.jitter,
            "delays_s": None if self.delays is None else tuple(seconds(delay, field="retry.delays") for delay in self.delays),
            "replays": self.replays,
            "replay_after_s": _seconds("retry.replay_after", self.replay_after),
        }
        if self.delays and self.max_attempts is None:
            given["max_attempts"] = len(self.delays) + 1
        try:
            return Retry(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        except Invalid as fault:
            raise Invalid(f"retry.{fault.field}", fault.message) from None


def _seconds(field: str, span: Span | None) -> float | None:
    return None if span is None else seconds(span, field=field)
