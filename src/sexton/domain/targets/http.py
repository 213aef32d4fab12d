"""One HTTP call, as a job describes it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .secret import SecretRef


class HttpTarget(msgspec.Struct, tag_field="type", tag="http", frozen=True, omit_defaults=True):
    """`body` is sent as it is; without one, the payload is, as JSON. `signed_with` names the secrets that sign the call:
    several while one is being replaced by another."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str | SecretRef] = msgspec.field(default_factory=dict)
    body: str | None = None
    succeeds_on: tuple[str, ...] = ("2xx",)
    retries_on: tuple[str, ...] = ("408", "425", "429", "5xx")
    connect_timeout_s: float = 5.0
    redirects: int = 0
    keeps_bytes: int = 16_384  # of the answer's body
    signed_with: tuple[str, ...] = ()
