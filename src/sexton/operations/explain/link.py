"""One question about a job, with its answer."""

from __future__ import annotations

from typing import Any, NamedTuple


class Link(NamedTuple):
    check: str
    ok: bool  # it is no obstacle
    detail: str
    evidence: dict[str, Any]  # the facts behind the answer
