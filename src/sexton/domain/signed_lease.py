"""A lease as one text, for its holder over HTTP: a remote worker, or a target that calls back.

It names the job and the token of the claim, and is signed together with the run's id: nobody makes one for a run they were not
given, and one of an earlier claim stays one of an earlier claim. The key is the cluster's; it is in no answer and in no log.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import NamedTuple
from uuid import UUID

_CONTEXT = b"sexton lease 1\0"  # a signature of this key for anything else is none for a lease
_JOB, _TOKEN, _SIGNATURE = 16, 8, 32
_LENGTH = 75  # characters


class SignedLease(NamedTuple):
    """What a text that was signed by this cluster says. The token alone is the fence: no two claims of a run share one."""

    run_id: UUID
    job_id: UUID
    token: int


def written(key: bytes, lease: SignedLease) -> str:
    said = _said(lease)
    return base64.urlsafe_b64encode(said + _signature(key, lease.run_id, said)).rstrip(b"=").decode()


def read(key: bytes, run_id: UUID, text: str) -> SignedLease | None:
    """`None` if this is no lease of that run."""
    if len(text) != _LENGTH or not text.isascii():
        return None
    try:
        raw = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    said, signature = raw[: _JOB + _TOKEN], raw[_JOB + _TOKEN :]
    if len(signature) != _SIGNATURE or not hmac.compare_digest(signature, _signature(key, run_id, said)):
        return None
    return SignedLease(run_id, UUID(bytes=said[:_JOB]), int.from_bytes(said[_JOB:]))


def _said(lease: SignedLease) -> bytes:
    return lease.job_id.bytes + lease.token.to_bytes(_TOKEN)


def _signature(key: bytes, run_id: UUID, said: bytes) -> bytes:
    return hmac.digest(key, _CONTEXT + run_id.bytes + said, "sha256")
