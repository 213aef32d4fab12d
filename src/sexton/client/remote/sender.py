"""What `Client` and `AsyncClient` share: sending a call with retries, and reading a list page by page. The clients implement
the few methods that use the network or the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import httpx

from sexton import wire
from sexton.ids import entropy

from .address import shown, validated
from .call import Call, Pages, get
from .retries import Tries

T = TypeVar("T")
PAGE = 500


class Sender(ABC):
    def __init__(self, url: str, timeout_s: float, retries: int) -> None:
        self._address = shown(validated(url))
        self._timeout_s, self._retries, self._rng = timeout_s, retries, entropy()

    @abstractmethod
    async def _request(self, **request: Any) -> httpx.Response: ...

    @abstractmethod
    def _opened(self, **request: Any) -> AbstractAsyncContextManager[tuple[httpx.Response, AsyncIterator[str]]]:
        """A response that is read line by line. The body of an error is already read."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None: ...

    @abstractmethod
    def _now(self) -> float:
        """Monotonic."""

    async def _send(self, call: Call[T]) -> T:
        tries = self._tries(call)
        while True:
            try:
                response = await self._request(**call.request())
            except httpx.RequestError as error:
                pause_s = tries.after_failure(error)
            else:
                again_s = tries.after_answer(response)
                if again_s is None:
                    return call.read(response)
                pause_s = again_s
            await self._sleep(pause_s)

    async def _walk(self, pages: Pages[T]) -> AsyncGenerator[T, None]:
        cursor, left = None, float("inf") if pages.limit is None else pages.limit
        while left > 0:
            answer = await self._send(pages.at(cursor, int(min(left, PAGE))))
            for item in answer.items:
                yield item
            left -= len(answer.items)
            cursor = answer.next_cursor
            if cursor is None:
                return

    async def _listed(self, path: str, page: type[wire.Page[T]]) -> list[T]:
        """A list that the API returns in one response."""
        return list((await self._send(get(path, page))).items)

    def _tries(self, call: Call[Any]) -> Tries:
        return Tries(call, self._retries, self._rng, self._address)
