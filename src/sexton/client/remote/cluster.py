"""Workers, nodes, figures and events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TypedDict, Unpack
from uuid import UUID

import httpx

from sexton import wire

from .address import timeouts
from .call import Call, get, query
from .problems import error_in
from .sender import Sender
from .stream import READ_TIMEOUT_S, EventStream
from .sync_and_async import Operation, Stream, call

_NOT_READY = frozenset({503})


class EventFilters(TypedDict, total=False):
    job_id: UUID | None
    tenant: str | None
    queue: str | None
    handler: str | None
    type: str | None


class ClusterCalls(Sender):
    @Operation
    async def workers(self) -> list[wire.Worker]:
        return await self._listed("/v1/workers", wire.Page[wire.Worker])

    @Operation
    async def nodes(self) -> list[wire.Node]:
        return await self._listed("/v1/nodes", wire.Page[wire.Node])

    @call
    def stats(self) -> Call[wire.Stats]:
        return get("/v1/stats", wire.Stats)

    @call
    def ready(self) -> Call[wire.Readiness]:
        """ "Not ready" is a normal response too."""
        return Call("GET", "/readyz", wire.Readiness, repeatable=True, expects=_NOT_READY)

    @Stream
    async def events(self, **filters: Unpack[EventFilters]) -> AsyncGenerator[wire.Event, None]:
        """One event per transition, live. After a lost connection it continues where it was. Ends when you stop it."""
        stream = EventStream(query(**filters))
        asked = Call("GET", "/v1/events", wire.Event, query=stream.query, repeatable=True)
        tries = self._tries(asked)
        while True:
            request = {**asked.request(), "headers": stream.headers(), "timeout": timeouts(READ_TIMEOUT_S)}
            try:
                async with self._opened(**request) as (response, lines):
                    if not response.is_success:
                        again_s = tries.after_answer(response)
                        if again_s is None:
                            raise error_in(response)
                        pause_s = again_s
                    else:
                        stream.opened()
                        async for line in lines:
                            event = stream.feed(line)
                            if event is not None:
                                tries = self._tries(asked)
                                yield event
                        pause_s = tries.after_failure(httpx.ReadError("the stream ended"))
            except httpx.RequestError as error:
                pause_s = tries.after_failure(error)
            await self._sleep(pause_s)
