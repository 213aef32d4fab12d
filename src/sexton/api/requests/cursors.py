"""Opaque cursors for keyset paging: where the last page ended, and a digest of the filter it belongs to."""

from __future__ import annotations

import base64
import binascii
import hashlib
from uuid import UUID

import msgspec

from sexton.api.answers.problems import invalid

_VERSION = b"\x01"
_DIGEST_BYTES = 6


def encode(before: UUID | None, chosen: msgspec.Struct) -> str | None:
    """`None` at the end."""
    if before is None:
        return None
    return base64.urlsafe_b64encode(_VERSION + _digest(chosen) + before.bytes).decode().rstrip("=")


def decode(cursor: str | None, chosen: msgspec.Struct) -> UUID | None:
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 1 + _DIGEST_BYTES + 16 or raw[:1] != _VERSION:
        raise invalid("?cursor", "is not a cursor of this API; send `next_cursor` as it came, or leave it out to start again")
    if raw[1 : 1 + _DIGEST_BYTES] != _digest(chosen):
        raise invalid("?cursor", "belongs to a list with other filters; keep the filters, or leave it out to start again")
    return UUID(bytes=raw[1 + _DIGEST_BYTES :])


def _digest(chosen: msgspec.Struct) -> bytes:
    """Two lists are the same if kind and filter are."""
    text = type(chosen).__name__.encode() + msgspec.json.encode(chosen)
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()


def encode_text(after: str) -> str:
    """Of a list by name."""
    return base64.urlsafe_b64encode(_VERSION + after.encode()).decode().rstrip("=")


def decode_text(cursor: str | None) -> str:
    if cursor is None:
        return ""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        text = raw[1:].decode() if raw[:1] == _VERSION else ""
    except (binascii.Error, ValueError):
        text = ""
    if not text or "\x00" in text:
        raise invalid("?cursor", "is not a cursor of this API; send `next_cursor` as it came, or leave it out to start again")
    return text
