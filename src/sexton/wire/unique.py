"""Which jobs are equal, as callers write it."""

from __future__ import annotations

from typing import Literal

from sexton.domain.job import Unique

from .kinds import Request, Span, Word


class UniqueRule(Request, frozen=True, kw_only=True):
    """Equal jobs are one, while they are pending or for `period` after their submission."""

    by: tuple[Word, ...] = ("handler", "payload")
    period: Span | None = None
    on_conflict: Literal["keep", "replace"] = "keep"

    def to_domain(self) -> Unique:
        by = ("task" if part == "handler" else part for part in self.by)
        return Unique.of(*by, period=self.period, on_conflict=self.on_conflict)
