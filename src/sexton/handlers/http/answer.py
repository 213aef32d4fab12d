"""A response: how much of it is stored, and what it means for the run.

No response may use more memory than is stored of it, for any length, encoding or declared length.
"""

from __future__ import annotations

import base64
import codecs
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import msgspec

from sexton.domain.outcome import storable
from sexton.domain.targets import HttpTarget
from sexton.domain.targets.http import has_status
from sexton.errors import PermanentError, RetryLater, TargetFailed
from sexton.handlers.redaction import HIDDEN, hidden, hidden_within, without_cut_secret

RETRY_AFTER_S_MAX = 86_400.0
SHOWN_BYTES = 300  # of the body, in an error message
LEFT_OVER_BYTES = 64 * 1024  # read and discarded, so that the connection can be reused
RESULT_BYTES = 60 * 1024  # a result has at most 64 KiB
KEPT_HEADERS = ("content-type", "location", "etag", "last-modified", "retry-after", "x-request-id")

_encode = msgspec.json.Encoder().encode
_CHARSETS = re.compile(
    r"utf-?8|utf-16(le|be)?|(us-)?ascii|latin-?1|iso-8859-\d{1,2}|(windows-|cp)125\d|koi8-[ru]"
    r"|shift_jis|euc-(jp|kr)|gb2312|gbk|gb18030|big5"
)


class Stream(Protocol):
    async def readany(self) -> bytes: ...

    def at_eof(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    truncated: bool


async def read_body(stream: Stream, encoding: str, limit: int) -> tuple[bytes, bool, bool]:
    """The stored part of a body, whether it is truncated, and whether all was read."""
    unpacked = _Unpacked(encoding, limit)
    left_over = LEFT_OVER_BYTES
    while not stream.at_eof():
        chunk = await stream.readany()
        if unpacked.is_full:
            left_over -= len(chunk)
            if left_over < 0:
                return unpacked.kept, True, False
        unpacked.add(chunk)
    return unpacked.kept, unpacked.is_cut, True


class _Unpacked:
    """The first bytes of a body. No more is decompressed than is stored."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._room = limit
        self._inflater = zlib.decompressobj(47) if encoding in ("gzip", "x-gzip", "deflate") else None
        self.is_cut = False

    @property
    def kept(self) -> bytes:
        return b"".join(self._parts)

    @property
    def is_full(self) -> bool:
        return self._room == 0

    def add(self, chunk: bytes) -> None:
        if not chunk:
            return
        if self._inflater is not None:
            try:
                data = self._inflater.decompress(chunk, self._room + 1)  # one more than fits, to detect that it does not fit
            except zlib.error:
                self.is_cut, self._inflater, data = True, None, b""
        else:
            data = chunk
        self.is_cut = self.is_cut or len(data) > self._room
        self._parts.append(data[: self._room])
        self._room -= min(len(data), self._room)


def result_of(answer: Answer, secrets: Sequence[str]) -> dict[str, Any]:
    """As the history stores it. It is never too large, because the call has already had its effect and must not fail now."""
    kept = {name: hidden(answer.headers[name], secrets) for name in KEPT_HEADERS if name in answer.headers}
    result: dict[str, Any] = {"status": answer.status, "headers": {name: storable(value)[:500] for name, value in kept.items()}}
    field, body = _body_of(answer, secrets)
    result |= {field: body, "truncated": answer.truncated}
    if len(_encode(result)) > RESULT_BYTES:
        text = body if isinstance(body, str) else _encode(body).decode()
        result |= {field: text[: RESULT_BYTES // 8], "truncated": True}  # one character may become six or more
    return result


def _body_of(answer: Answer, secrets: Sequence[str]) -> tuple[str, Any]:
    content_type = answer.headers.get("content-type", "").lower()
    kind = content_type.partition(";")[0].strip()
    try:  # the cut may be inside a character
        text = codecs.getincrementaldecoder(_charset(content_type))().decode(answer.body, not answer.truncated)
    except (UnicodeError, LookupError):
        return "body_base64", base64.b64encode(_hidden_bytes(answer.body, secrets, is_cut=answer.truncated)).decode()
    if (kind == "application/json" or kind.endswith("+json")) and not answer.truncated and "\\u0000" not in text:
        try:
            return "body", hidden_within(msgspec.json.decode(text), secrets)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    return "body", storable(hidden(text, secrets, is_cut=answer.truncated))


def _hidden_bytes(body: bytes, secrets: Sequence[str], *, is_cut: bool) -> bytes:
    for secret in (one.encode() for one in secrets):
        body = body.replace(secret, HIDDEN.encode())
        if is_cut:
            body = without_cut_secret(body, secret)
    return body


def _charset(content_type: str) -> str:
    """Python codecs also include `zlib` and others: only text encodings may be used."""
    _, _, rest = content_type.partition("charset=")
    name = rest.split(";")[0].strip(" \"'") or "utf-8"
    if not _CHARSETS.fullmatch(name):
        raise LookupError(name)
    return name


def judge(answer: Answer, target: HttpTarget, what: str, secrets: Sequence[str], now: datetime) -> None:
    """Returns if the call succeeded, else raises the error of this attempt. `what` names the call in the message."""
    if has_status(target.succeeds_on, answer.status):
        return
    shown = hidden(answer.body[:SHOWN_BYTES].decode("utf-8", "replace"), secrets, is_cut=True)
    message = f"{what} answered {answer.status}" + (f": {' '.join(shown.split())}" if shown.strip() else "")
    if has_status(target.retries_on, answer.status):
        delay_s = retry_after_s(answer.headers, now)
        raise TargetFailed(message) if delay_s is None else RetryLater(message, delay_s=delay_s)
    if answer.status // 100 == 3 and "location" in answer.headers:
        message = f"{what} answered {answer.status}; the job follows at most {target.redirects} redirects"
    raise PermanentError(message)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds or a date. A date is compared with the response's own date, if any: clocks differ. `None` if not valid."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), RETRY_AFTER_S_MAX)
    at = _date(text)
    if at is None:
        return None
    left_s = (at - (_date(headers.get("date", "")) or now)).total_seconds()
    return min(left_s, RETRY_AFTER_S_MAX) if left_s > 0 else None


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
