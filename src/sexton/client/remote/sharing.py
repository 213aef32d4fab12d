"""The calls about tenants, queues and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Unpack

import msgspec

from sexton import wire
from sexton.domain.limit import LimitOptions
from sexton.domain.retry import Retry
from sexton.domain.sharing import QueueOptions, TenantOptions
from sexton.errors import InvalidSubmission

from .call import Call, Pages, get, part
from .calls import policy, span
from .sender import Sender
from .sync_and_async import Operation, call, pages

T = TypeVar("T")


class SharingCalls(Sender):
    @Operation
    async def tenants(self) -> list[wire.TenantView]:
        return await self._listed("/v1/tenants", wire.Page[wire.TenantView])

    @pages
    def limits(self, prefix: str | None = None, *, limit: int | None = None) -> Pages[wire.LimitView]:
        """By key, without their holders."""
        return Pages(get("/v1/limits", wire.Page[wire.LimitView], prefix=prefix), limit)

    @Operation
    async def queues(self) -> list[wire.QueueView]:
        return await self._listed("/v1/queues", wire.Page[wire.QueueView])

    @call
    def tenant(self, name: str) -> Call[wire.TenantView]:
        return get(_tenant(name), wire.TenantView)

    @call
    def limit(self, key: str) -> Call[wire.LimitView]:
        """With the runs that hold it, and how many wait."""
        return get(_limit(key), wire.LimitView)

    @call
    def queue(self, name: str) -> Call[wire.QueueView]:
        return get(_queue(name), wire.QueueView)

    @call
    def set_tenant(self, name: str, **settings: Unpack[TenantOptions]) -> Call[wire.TenantView]:
        """Replaces its settings: its weight and its limits."""
        return _put(_tenant(name), wire.TenantView, wire.TenantSettings, settings)

    @call
    def set_limit(self, key: str, **numbers: Unpack[LimitOptions]) -> Call[wire.LimitView]:
        """Creates the limit or replaces its numbers: `running` at once, or `count` starts `per` duration, or both."""
        return _put(_limit(key), wire.LimitView, wire.LimitSettings, numbers)

    @call
    def set_queue(self, name: str, **settings: Unpack[QueueOptions]) -> Call[wire.QueueView]:
        """Replaces its settings: its release rate, ageing, and the defaults of its jobs."""
        return _put(_queue(name), wire.QueueView, wire.QueueSettings, settings)

    @call
    def pause_tenant(self, name: str, *, note: str | None = None) -> Call[wire.TenantView]:
        """None of its runs starts until it is resumed; running ones continue."""
        return _status(_tenant(name), wire.TenantView, "paused", note)

    @call
    def pause_queue(self, name: str, *, note: str | None = None) -> Call[wire.QueueView]:
        """No run in it starts until it is resumed; running ones continue."""
        return _status(_queue(name), wire.QueueView, "paused", note)

    @call
    def resume_tenant(self, name: str) -> Call[wire.TenantView]:
        return _status(_tenant(name), wire.TenantView, "active")

    @call
    def resume_queue(self, name: str) -> Call[wire.QueueView]:
        return _status(_queue(name), wire.QueueView, "active")

    @call
    def remove_tenant(self, name: str) -> Call[wire.Removed]:
        """It has the defaults again."""
        return Call("DELETE", _tenant(name), wire.Removed)

    @call
    def remove_limit(self, key: str) -> Call[wire.Removed]:
        """`NotAllowedIn` while runs wait for it."""
        return Call("DELETE", _limit(key), wire.Removed)

    @call
    def remove_queue(self, name: str) -> Call[wire.Removed]:
        """It has the defaults again."""
        return Call("DELETE", _queue(name), wire.Removed)


def _tenant(name: str) -> str:
    return f"/v1/tenants/{part(name)}"


def _queue(name: str) -> str:
    return f"/v1/queues/{part(name)}"


def _limit(key: str) -> str:
    return f"/v1/limits/{part(key)}"


def _put(path: str, answer: type[T], kind: Any, given: Mapping[str, Any]) -> Call[T]:
    """Idempotent."""
    settings = {name: policy(value) if isinstance(value, Retry) else span(value) for name, value in given.items()}
    try:
        asked = kind(**{name: value for name, value in settings.items() if value is not None})
    except TypeError:
        wrong = next((name for name in settings if name not in kind.__struct_fields__), "")
        may = ", ".join(kind.__struct_fields__)
        raise InvalidSubmission(f"/{wrong}", f"cannot be set; these fields can: {may}") from None
    return Call("PUT", path, answer, body=msgspec.json.encode(asked), repeatable=True)


def _status(path: str, answer: type[T], status: Literal["active", "paused"], note: str | None = None) -> Call[T]:
    body = msgspec.json.encode(wire.ShareStatusChange(status=status, note=note))
    return Call("PATCH", f"{path}/status", answer, body=body, repeatable=True)
