"""The API for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, Unpack

import httpx

from sexton import wire
from sexton.client.options import Options
from sexton.domain.targets import Target

from . import calls
from .address import DEFAULT_URL, TIMEOUT_S, connection
from .operations import Operations, SubmittedJob
from .retries import RETRIES
from .sync_and_async import Awaited

Transport = httpx.AsyncBaseTransport | None


class AsyncHandle(SubmittedJob, Awaited):
    """A submitted job."""

    __slots__ = ()


class AsyncClient(Operations, Awaited):
    """`async with AsyncClient("http://127.0.0.1:8474") as client: …`; the calls are those of `Client`, awaited.

    Calls are repeated as `Client` repeats them.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, timeout_s: float = TIMEOUT_S, retries: int = RETRIES, transport: Transport = None
    ) -> None:
        super().__init__(url, timeout_s, retries)
        self._http = httpx.AsyncClient(**connection(url, timeout_s), transport=transport)

    async def submit(self, handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> AsyncHandle:
        return await self.submit_request(calls.request(handler, payload, **options))

    async def submit_request(self, request: wire.JobRequest) -> AsyncHandle:
        return AsyncHandle(await self._submitted(request), self)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _request(self, **request: Any) -> httpx.Response:
        return await self._http.request(**request)

    @asynccontextmanager
    async def _opened(self, **request: Any) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
        async with self._http.stream(**request) as response:
            if not response.is_success:
                await response.aread()
            yield response, response.aiter_lines()

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
