"""The basic types of the wire: spans, instants, names, statuses; and the base of every request and every answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sexton.domain.job import NAME_LIMIT

# The domain checks what the schema declares beyond the types, because its messages are better than a decoder's.
_TEN_YEARS = {"minimum": 0, "maximum": 10 * 366 * 86400}
Span = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": r"^([0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d))+$"})]
    | Annotated[float, Meta(extra_json_schema=_TEN_YEARS)]
    | Annotated[int, Meta(extra_json_schema=_TEN_YEARS)],
    Meta(description='A span: "250ms", "90s", "15m", "24h", "7d", "1h30m", or a number of seconds.', examples=["90s"]),
]
Rule = Annotated[str, Meta(min_length=1, max_length=10_000, extra_json_schema={"pattern": "^[^\\u0000]*$"})]
Word = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT, extra_json_schema={"pattern": "^[^\\u0000]*$"})]
Instant = Annotated[datetime, Meta(tz=True, description="An instant with an offset (RFC 3339), such as 2026-03-01T09:00:00Z.")]

Moment = Annotated[datetime, Meta(tz=True)]

JobStatus = Literal["pending", "running", "completed", "failed", "cancelled", "paused"]
ExecutionStatus = Literal[
    "running", "succeeded", "failed", "timed_out", "cancelled", "lost", "snoozed", "released", "skipped", "missed", "paused"
]
Origin = Literal["schedule", "now", "backfill", "replay"]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sent by a caller."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Received by a caller. A newer server may add fields."""
