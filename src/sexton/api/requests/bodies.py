"""Reads the body that a caller sent. A JSON pointer names every fault in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import msgspec

from sexton.api.answers.problems import Refused, invalid
from sexton.api.state import ApiRequest

from .faults import checked, unreadable

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"
DEPTH_LIMIT = 100

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


async def body_of(request: ApiRequest, *media_types: str) -> tuple[bytes, str]:
    """The body as sent, and its media type. Without a content type it is read as JSON."""
    media_type = _media_type(request, media_types or (JSON,))
    body = await request.body()
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Refused("malformed", f"the body is not UTF-8: byte {error.start} is not part of a character") from None
    return body, media_type


async def read(request: ApiRequest, kind: type[S], *media_types: str, check: Callable[[S], object] | None = None) -> S:
    """With `check`, a body that cannot be decoded is rejected together with the rules that its other fields break."""
    body, _ = await body_of(request, *(media_types or (JSON,)))
    return decoded(body, kind, check)


async def read_checked(request: ApiRequest, kind: type[S], check: Callable[[S], T]) -> T:
    """The result of `check` for the body."""
    return checked(await read(request, kind, check=check), check)


def decoded(body: bytes | msgspec.Raw, kind: type[S], check: Callable[[S], object] | None = None) -> S:
    """Invalid: a rule is broken, with a pointer for each fault. Malformed: it is not valid JSON."""
    try:
        try:
            read: S = _decoder(kind).decode(body)
            return read
        except msgspec.ValidationError as error:
            raise unreadable(body, kind, error, check) from None
    except msgspec.DecodeError as error:
        raise malformed(error) from None
    except RecursionError:
        raise invalid("", f"nested more than {DEPTH_LIMIT} levels deep") from None


def malformed(error: Exception) -> Refused:
    return Refused("malformed", f"the body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}")


@cache
def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(kind)


def _media_type(request: ApiRequest, allowed: tuple[str, ...]) -> str:
    header = request.headers.get("content-type")
    if header is None:
        return allowed[0]
    media_type, _, parameters = header.partition(";")
    media_type = media_type.strip().lower()
    charset = re.search(r'charset\s*=\s*"?([^";\s]+)', parameters, re.IGNORECASE)
    if media_type not in allowed or (charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii")):
        raise Refused(
            "unsupported_media_type",
            f"send {' or '.join(allowed)} in UTF-8, not {header[:100]!r}; with curl: -H 'Content-Type: {allowed[0]}'",
            headers={"Accept-Post" if request.method == "POST" else "Accept-Patch": ", ".join(allowed)},
        )
    return media_type


def refuse_unkeepable(at: str, text: str | None) -> None:
    if text is not None and "\x00" in text:
        raise invalid(at, "holds a NUL character (U+0000), which PostgreSQL cannot store")
