"""Reads the body a caller sent. Whatever is wrong with it is named by a JSON pointer."""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar

import msgspec

from sexton.api.answers.problems import Refused, invalid, pointer
from sexton.api.state import ApiRequest
from sexton.wire import Fault

from .choices import choices_at, in_words

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"
DEPTH_LIMIT = 100

S = TypeVar("S", bound=msgspec.Struct)

_WHERE = re.compile(r"(.*) - at `(?:key in )?(\$.*)`", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_CHOICE = re.compile(r"Invalid (?:enum )?value (.+)", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)
_WORDS = {
    "Expected `datetime` with a timezone component": "give an instant with an offset, such as 2026-03-01T09:00:00Z",
    "Invalid RFC3339 encoded datetime": "give an instant with an offset (RFC 3339), such as 2026-03-01T09:00:00Z",
}


async def body_of(request: ApiRequest, *media_types: str) -> tuple[bytes, str]:
    """The body as sent, and its media type. No content type at all is taken for JSON."""
    media_type = _media_type(request, media_types or (JSON,))
    body = await request.body()
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Refused("malformed", f"the body is not UTF-8: byte {error.start} ends no character") from None
    return body, media_type


async def read(request: ApiRequest, kind: type[S], *media_types: str) -> S:
    body, _ = await body_of(request, *(media_types or (JSON,)))
    return decoded(body, kind)


def decoded(body: bytes | msgspec.Raw, kind: type[S]) -> S:
    """Invalid is a rule broken, with a pointer; malformed is no JSON at all."""
    try:
        read: S = _decoder(kind).decode(body)
        return read
    except msgspec.ValidationError as error:
        fault = fault_in(str(error), kind)
        raise Refused("invalid", f"{fault.pointer or 'the body'}: {fault.detail}", [fault]) from None
    except msgspec.DecodeError as error:
        raise malformed(error) from None
    except RecursionError:
        raise invalid("", f"nested more than {DEPTH_LIMIT} levels deep") from None


def malformed(error: Exception) -> Refused:
    return Refused("malformed", f"the body is no JSON: {str(error).removeprefix('JSON is malformed: ')}")


@cache
def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    return msgspec.json.Decoder(kind)


def _media_type(request: ApiRequest, allowed: tuple[str, ...]) -> str:
    said = request.headers.get("content-type")
    if said is None:
        return allowed[0]
    media_type, _, parameters = said.partition(";")
    media_type = media_type.strip().lower()
    charset = re.search(r'charset\s*=\s*"?([^";\s]+)', parameters, re.IGNORECASE)
    if media_type not in allowed or (charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii")):
        raise Refused(
            "unsupported_media_type",
            f"send {' or '.join(allowed)} in UTF-8, not {said[:100]!r}; with curl: -H 'Content-Type: {allowed[0]}'",
            headers={"Accept-Post" if request.method == "POST" else "Accept-Patch": ", ".join(allowed)},
        )
    return media_type


def fault_in(message: str, kind: type | None = None) -> Fault:
    """msgspec's words about a value of `kind`, with its path as a JSON pointer, and what may stand there instead."""
    found = _WHERE.fullmatch(message)
    said, path = (found[1], found[2]) if found else (message, "$")
    steps = tuple(name or index for name, index in _STEP.findall(path))
    at = pointer(*steps)
    if field := _FIELD.fullmatch(said):
        at += pointer(field[1])
        said = "there is no such field" if "unknown" in said[:24] else "is required"
    elif kind is not None and (wrong := _CHOICE.fullmatch(said)) and (choices := choices_at(kind, steps)):
        said = f"{wrong[1]} is unknown; use {in_words(choices)}"
    said = said.strip()
    return Fault(pointer=at, detail=_WORDS.get(said, said[:1].lower() + said[1:]))


def refuse_unkeepable(at: str, text: str | None) -> None:
    if text is not None and "\x00" in text:
        raise invalid(at, "holds a NUL character (U+0000), which PostgreSQL cannot keep")
