"""Limits how much may run at once, in requests and in bytes of bodies. A request above the limit is rejected before it costs
anything, so that the memory of this process is bounded and accepted requests are answered soon. Health checks always pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from sexton.api.answers.problems import MEDIA_TYPE, Refused, document

# Health checks must always be answered; event streams only wait.
ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/v1/events"})
_AGAIN = {"Retry-After": "1"}


class LoadShedder:
    def __init__(self, *, request_limit: int, body_bytes_limit: int) -> None:
        self._request_limit, self._body_bytes_limit = request_limit, body_bytes_limit
        self.under_way_count = 0
        self.held_bytes = 0

    def before(self, app: ASGIApp) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != ScopeType.HTTP or scope["path"] in ALWAYS_OPEN:
                await app(scope, receive, send)
            elif self.under_way_count >= self._request_limit:
                await self._turn_away(scope, send)
            else:
                await self._let_in(app, scope, receive, send)

        return guarded

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For a request that sleeps: it uses no capacity."""
        self.under_way_count -= 1
        try:
            yield
        finally:
            self.under_way_count += 1

    async def _let_in(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        own_bytes = 0

        async def counted() -> Any:
            nonlocal own_bytes
            message = await receive()
            size = len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if size and self.held_bytes + size > self._body_bytes_limit:
                raise Refused("overloaded", "the bodies of other requests fill the memory; try again shortly", headers=_AGAIN)
            own_bytes += size
            self.held_bytes += size
            return message

        self.under_way_count += 1
        try:
            await app(scope, counted, send)
        finally:
            self.under_way_count -= 1
            self.held_bytes -= own_bytes

    async def _turn_away(self, scope: Scope, send: Send) -> None:
        detail = f"{self._request_limit:,} requests are already running; try again shortly"
        values: Any = scope
        problem = document(Refused("overloaded", detail), values.get("request_id"))
        body = msgspec.json.encode(problem)
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode()) for name, value in _AGAIN.items()),
        ]
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
