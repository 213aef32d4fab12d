"""Signatures in the form of Standard Webhooks: HMAC-SHA256 over id, timestamp and body, one per active secret."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable

from sexton.errors import PermanentError

PREFIX = "whsec_"
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")


def message_id(key: str | None, idempotency_key: str) -> str:
    """The same for every attempt and every replay. It is the job's own key if that is a valid id: both sides know it."""
    if key is not None and _ID.fullmatch(key):
        return key
    return "msg_" + hashlib.sha256(idempotency_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def signed(message: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> dict[str, str]:
    """The three headers. A receiver that knows any of the secrets can verify them."""
    content = f"{message}.{timestamp}.".encode() + body
    signatures = (hmac.new(_key(secret), content, hashlib.sha256).digest() for secret in secrets)
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join("v1," + base64.b64encode(signature).decode() for signature in signatures),
    }


def _key(secret: str) -> bytes:
    """A secret with `whsec_` is base64; any other is used unchanged."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise PermanentError("a secret of signed_with starts with whsec_, but the rest of it is not valid base64") from None
