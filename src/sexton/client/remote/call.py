"""One call of the API as a value: the request, and the type of the response. The clients send it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote
from uuid import UUID

import httpx
import msgspec

from sexton import wire
from sexton.errors import ApiError, InvalidSubmission

from .problems import error_in

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str
    answer: type[T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False  # idempotent: it may be sent again if the reply was lost
    expects: frozenset[int] = frozenset()  # statuses other than 2xx that are not errors

    def request(self) -> dict[str, Any]:
        """The arguments of httpx's `request`."""
        headers = dict(self.headers)
        if self.body is not None:
            headers.setdefault("Content-Type", "application/json")
        return {
            "method": self.method,
            "url": self.path,
            "params": self.query or None,
            "content": self.body,
            "headers": headers,
        }

    def read(self, response: httpx.Response) -> T:
        """The response, or an error of Sexton."""
        if not response.is_success and response.status_code not in self.expects:
            raise error_in(response)
        try:
            answer: T = _decoder(cast(Any, self.answer)).decode(response.content)
        except msgspec.MsgspecError as error:
            raise ApiError(
                f"{response.request.url.path} sent a response that this version cannot read ({error}); is it Sexton's API?",
                status=response.status_code,
            ) from error
        return answer


@dataclass(frozen=True)
class Pages(Generic[T]):
    """A list that is read page by page."""

    first: Call[wire.Page[T]]
    limit: int | None  # of items; none: to the end

    def at(self, cursor: str | None, size: int) -> Call[wire.Page[T]]:
        return replace(self.first, query={**self.first.query, **query(cursor=cursor, limit=size)})


def get(path: str, answer: type[T], **given: Any) -> Call[T]:
    return Call("GET", path, answer, query=query(**given), repeatable=True)


def query(**given: Any) -> dict[str, str]:
    """The given parameters, in the format of the API."""
    return {name: _spelled(value) for name, value in given.items() if value is not None}


def part(value: UUID | str) -> str:
    """One part of a path, percent-encoded."""
    return quote(str(value), safe="") or "-"


def encoded(document: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidSubmission("", f"cannot be encoded as JSON: {error}") from error


def _spelled(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
