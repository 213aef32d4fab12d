"""The API for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
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
from .sync_and_async import Blocking, finished

Transport = httpx.BaseTransport | None


class Handle(SubmittedJob, Blocking):
    """A submitted job."""

    __slots__ = ()


class Client(Operations, Blocking):
    """The API from Python: `with Client("http://127.0.0.1:8474") as client: …`. Safe to share between threads.

    Reads and submissions are tried again (`retries` times) when the connection breaks or the server is busy. A submission
    without a key gets a random one for that, so it cannot become two jobs. `retries=0` sends no such key and tries once.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, timeout_s: float = TIMEOUT_S, retries: int = RETRIES, transport: Transport = None
    ) -> None:
        super().__init__(url, timeout_s, retries)
        self._http = httpx.Client(**connection(url, timeout_s), transport=transport)

    def submit(self, handler: str | Target, payload: Any = None, **options: Unpack[Options]) -> Handle:
        return self.submit_request(calls.request(handler, payload, **options))

    def submit_request(self, request: wire.JobRequest) -> Handle:
        return Handle(finished(self._submitted(request)), self)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def _request(self, **request: Any) -> httpx.Response:
        return self._http.request(**request)

    @asynccontextmanager
    async def _opened(self, **request: Any) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
        with self._http.stream(**request) as response:
            if not response.is_success:
                response.read()
            yield response, _Read(response.iter_lines())

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  (no event loop runs this)

    def _now(self) -> float:
        return time.monotonic()


class _Read:
    """A plain iterator for `async for`."""

    def __init__(self, items: Iterator[str]) -> None:
        self._items = items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        for item in self._items:
            return item
        raise StopAsyncIteration
