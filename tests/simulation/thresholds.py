"""Lowers thresholds that only many runs would reach, so that a small cluster reaches them: claims that begin at a cursor, or
that do not look behind it because that costs too much, and a second claim at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sexton.domain import claim_cursors
from sexton.domain.fairness import Turns
from sexton.worker import intake

CURSOR_AFTER, LOOK_AGAIN_S, SECOND_HAND_MIN, CLAIM_LIMIT = 1, 2.0, 1, 3
ALWAYS_DEAR_S = -1.0


@contextmanager
def lowered_thresholds(seen: Counter[str], *, is_dear: bool) -> Iterator[None]:
    """`is_dear`: a worker that looked from the beginning once looks only ahead of its cursors for a while (`Look.AHEAD`)."""
    as_json = Turns.as_json

    def watched(turns: Turns, *args: Any, **options: Any) -> str:
        text = as_json(turns, *args, **options)
        seen["claim ahead of its cursors only"] += text.count(",true]")
        return text

    dear_s = ALWAYS_DEAR_S if is_dear else claim_cursors.DEAR_S
    with (
        patch.multiple(claim_cursors, CURSOR_AFTER=CURSOR_AFTER, LOOK_AGAIN_S=LOOK_AGAIN_S, DEAR_S=dear_s),
        patch.multiple(intake, SECOND_HAND_MIN=SECOND_HAND_MIN, CLAIM_LIMIT=CLAIM_LIMIT),
        patch.object(Turns, "as_json", watched),
    ):
        yield
