"""Every request has an id: the caller's if it is valid, else a new one. It is in the answer, in problems and in logs."""

from __future__ import annotations

import re
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from sexton.ids import Rng

_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,100}")


class RequestIds:
    """Around the whole app, so that an unknown address has one too."""

    def __init__(self, app: ASGIApp, rng: Rng) -> None:
        self._app, self._rng = app, rng

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if _SANE.fullmatch(given) else f"{self._rng.getrandbits(96):024x}".encode()
        values: dict[str, Any] = scope  # type: ignore[assignment]
        values["request_id"] = request_id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)
