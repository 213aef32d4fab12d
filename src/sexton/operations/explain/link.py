"""One question about a job, with its answer."""

from __future__ import annotations

from typing import Any, NamedTuple


class Link(NamedTuple):
    check: str
    ok: bool  # it does not stand in the way
    detail: str
    evidence: dict[str, Any]  # what the answer rests on
