"""What a call says of itself, beside its handler: `document.py` makes the OpenAPI document of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sexton.api.requests.bodies import JSON

WORDS_OF_HEADERS = {
    "Idempotency-Key": "The same as `idempotency_key`, bare or quoted: who sends the same again gets the first job.",
    "traceparent": "W3C Trace Context; kept with the job. Ignored if it is malformed.",
    "If-Match": "The ETag of the job as you know it (only its version counts), or `*`.",
    "If-None-Match": "The ETag you have; 304 if nothing has changed.",
    "Authorization": "`Bearer` and the lease of the run, if the body does not show it.",
    "Last-Event-ID": "The `id` of the last event you got, to go on from there.",
}
WORDS_OF_ANSWERS = {
    "Location": "The address of the job.",
    "ETag": "Version and digest of the job.",
    "Idempotent-Replayed": "`true` if the key or an equal job stood already, and nothing new was made.",
}


@dataclass(frozen=True)
class Body:
    """`kinds` by media type; the first is the one of the examples."""

    kinds: Mapping[str, Any]
    examples: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True


@dataclass(frozen=True)
class Answer:
    description: str
    kind: Any = None  # none: no body; a tuple: one of them
    media_type: str = JSON
    headers: tuple[str, ...] = ()
    example: Any = None


@dataclass(frozen=True)
class Call:
    id: str
    tag: str
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    query: type[msgspec.Struct] | None = None
    body: Body | None = None
    headers: tuple[str, ...] = ()
    problems: tuple[int, ...] = ()
    path: str | None = None  # as callers write it, where the route itself is wider


def described(call: Call) -> dict[str, Any]:
    """The `opt` of a handler."""
    return {"call": call}


def body(kind: Any, **examples: Any) -> Body:
    return Body({JSON: kind}, examples)
