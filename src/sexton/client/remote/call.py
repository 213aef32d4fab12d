"""One call of the API as a value: what is sent, and as what the answer is read. How it travels is the faces' affair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar, cast

import httpx
import msgspec

from sexton.errors import ApiError

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
    repeatable: bool = False  # twice is as once: it may be sent again when the reply was lost
    expects: frozenset[int] = frozenset()  # answers beyond 2xx that are none the less answers

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
        """The answer, or one of our errors."""
        if not response.is_success and response.status_code not in self.expects:
            raise error_in(response)
        try:
            answer: T = _decoder(cast(Any, self.answer)).decode(response.content)
        except msgspec.MsgspecError as error:
            raise ApiError(
                f"{response.request.url.path} answered what this version does not understand ({error}); is it Sexton's API?",
                status=response.status_code,
            ) from error
        return answer


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
