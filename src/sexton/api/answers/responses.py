"""Structs as responses: JSON bytes, a status, headers; entity tags."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Response
from litestar.types import ASGIApp, Receive, Scope, Send

from sexton.api.requests.bodies import JSON
from sexton.api.state import ApiRequest

from .problems import Refused

_encode = msgspec.json.Encoder().encode
_TAG = re.compile(r'(?:W/)?"(\d{1,9})(?:\.[0-9a-f]+)?"')


class _Encoded(Response[bytes]):
    """Litestar's own way from such a response to ASGI looks at media type, cookies and serializers: 15 µs of a POST."""

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIApp:  # type: ignore[override]
        body: bytes = self.content
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        headers += [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())]
        status = self.status_code

        async def written(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": status or 200, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return written


def answer(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    return _Encoded(_encode(body), status_code=status, media_type=JSON, headers=dict(headers or {}))


def tagged(request: ApiRequest, body: Any, version: int) -> Response[bytes]:
    """With an ETag of version and content; 304 if the caller already has exactly this."""
    encoded = _encode(body)
    tag = f'"{version}.{hashlib.blake2b(encoded, digest_size=8).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    seen = request.headers.get("if-none-match")
    if seen is not None and (seen.strip() == "*" or tag in [one.strip().removeprefix("W/") for one in seen.split(",")]):
        return Response(b"", status_code=304, media_type=JSON, headers=headers)
    return Response(encoded, status_code=200, media_type=JSON, headers=headers)


def expected_version(request: ApiRequest) -> int | None:
    """The version that `If-Match` asks for. Only that part of the tag counts: an edit depends on the definition, not on the
    status."""
    header = request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return None
    found = _TAG.fullmatch(header.strip())
    if found is None:
        raise Refused(
            "version_mismatch", "If-Match is not a tag of this API; send the ETag of GET /v1/jobs/{id}, or leave it out"
        )
    return int(found[1])
