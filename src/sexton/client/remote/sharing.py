"""The calls about tenants, queues and limits, built once for both faces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict
from urllib.parse import quote

import msgspec

from sexton import wire
from sexton.domain.duration import Duration
from sexton.domain.retry import Retry
from sexton.errors import InvalidSubmission

from .call import Call
from .calls import policy, query, span


class TenantWords(TypedDict, total=False):
    weight: int
    running_max: int | None
    waiting_max: int | None
    submit_rate: float | None
    submit_burst: int | None
    jitter: Duration | None


class QueueWords(TypedDict, total=False):
    release_rate: float | None
    release_burst: int | None
    ageing: Duration | None
    timeout: Duration | None
    jitter: Duration | None
    retry: Retry | None


class LimitWords(TypedDict, total=False):
    running: int | None
    count: int | None
    per: Duration | None
    burst: int | None
    ordered: bool


def set_tenant(name: str, words: Mapping[str, Any]) -> Call[wire.TenantView]:
    return _put(f"/v1/tenants/{_part(name)}", wire.TenantView, _told(wire.TenantSettings, words))


def set_queue(name: str, words: Mapping[str, Any]) -> Call[wire.QueueView]:
    retry = words.get("retry")
    said = {**words, "retry": policy(retry)} if isinstance(retry, Retry) else words
    return _put(f"/v1/queues/{_part(name)}", wire.QueueView, _told(wire.QueueSettings, said))


def set_limit(key: str, words: Mapping[str, Any]) -> Call[wire.LimitView]:
    return _put(f"/v1/limits/{_part(key)}", wire.LimitView, _told(wire.LimitSettings, words))


def tenant_status(name: str, change: wire.ShareStatusChange) -> Call[wire.TenantView]:
    return Call(
        "PATCH", f"/v1/tenants/{_part(name)}/status", wire.TenantView, body=msgspec.json.encode(change), repeatable=True
    )


def queue_status(name: str, change: wire.ShareStatusChange) -> Call[wire.QueueView]:
    return Call("PATCH", f"/v1/queues/{_part(name)}/status", wire.QueueView, body=msgspec.json.encode(change), repeatable=True)


def remove_tenant(name: str) -> Call[wire.Removed]:
    return Call("DELETE", f"/v1/tenants/{_part(name)}", wire.Removed)


def remove_queue(name: str) -> Call[wire.Removed]:
    return Call("DELETE", f"/v1/queues/{_part(name)}", wire.Removed)


def remove_limit(key: str) -> Call[wire.Removed]:
    return Call("DELETE", f"/v1/limits/{_part(key)}", wire.Removed)


def limit(key: str) -> Call[wire.LimitView]:
    return Call("GET", f"/v1/limits/{_part(key)}", wire.LimitView, repeatable=True)


def limits(prefix: str | None, cursor: str | None, size: int) -> Call[wire.Page[wire.LimitView]]:
    asked = query(prefix=prefix, cursor=cursor, limit=size)
    return Call("GET", "/v1/limits", wire.Page[wire.LimitView], query=asked, repeatable=True)


def _told(kind: Any, words: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(kind(**{name: span(value) for name, value in words.items() if value is not None}))
    except TypeError:
        wrong = next((name for name in words if name not in kind.__struct_fields__), "")
        may = ", ".join(kind.__struct_fields__)
        raise InvalidSubmission(f"/{wrong}", f"cannot be set; what may be: {may}") from None


def _put(path: str, answer: Any, body: bytes) -> Call[Any]:
    """Twice is as once."""
    return Call("PUT", path, answer, body=body, repeatable=True)


def _part(value: str) -> str:
    return quote(value, safe="") or "-"
