"""One question about a job, with its answer."""

from __future__ import annotations

from typing import Any, NamedTuple


class Link(NamedTuple):
    check: str
    ok: bool  # the job can run as far as this check goes
    detail: str
    evidence: dict[str, Any]  # the facts behind the answer
