"""A lease as one text, for its holder over HTTP: a remote worker, or a target that calls back.

It contains the job and the token of the claim, and is signed together with the run's id: a caller cannot make one for another
run, and a lease of an earlier claim never passes for a later one. The key belongs to the cluster; no response and no log may
contain it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import NamedTuple
from uuid import UUID

_CONTEXT = b"sexton lease 1\0"  # separates these signatures from any other use of the key
_JOB, _TOKEN, _SIGNATURE = 16, 8, 32
_LENGTH = 75  # characters


class SignedLease(NamedTuple):
    """The content of a lease that this cluster signed. The token alone is the fence: no two claims of a run share one."""

    run_id: UUID
    job_id: UUID
    token: int


def written(key: bytes, lease: SignedLease) -> str:
    content = _content(lease)
    return base64.urlsafe_b64encode(content + _signature(key, lease.run_id, content)).rstrip(b"=").decode()


def read(key: bytes, run_id: UUID, text: str) -> SignedLease | None:
    """`None` if this is not a lease of that run."""
    if len(text) != _LENGTH or not text.isascii():
        return None
    try:
        raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    content, signature = raw[: _JOB + _TOKEN], raw[_JOB + _TOKEN :]
    if len(signature) != _SIGNATURE or not hmac.compare_digest(signature, _signature(key, run_id, content)):
        return None
    return SignedLease(run_id, UUID(bytes=content[:_JOB]), int.from_bytes(content[_JOB:]))


def _content(lease: SignedLease) -> bytes:
    return lease.job_id.bytes + lease.token.to_bytes(_TOKEN)


def _signature(key: bytes, run_id: UUID, content: bytes) -> bytes:
    return hmac.digest(key, _CONTEXT + run_id.bytes + content, "sha256")
