"""F4: the limits on requests and on bytes of bodies apply to active requests, not to all that were ever received."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sexton.api.answers.problems import Refused
from sexton.api.edge.load_shedding import LoadShedder

BODY = b"x" * 80


class Caller:
    """One request whose app reads the whole body and then waits for the test."""

    def __init__(self, shedder: LoadShedder, *parts: bytes, fails: bool = False) -> None:
        self._parts, self._fails = list(parts), fails
        self.go_on = asyncio.Event()
        self.sent: list[Any] = []
        scope: Any = {"type": "http", "path": "/v1/jobs"}
        app: Any = shedder.before(self._app)
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _app(self, _scope: object, receive: Any, _send: object) -> None:
        while (await receive())["more_body"]:
            pass
        await self.go_on.wait()
        if self._fails:
            raise ValueError("no luck")

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": self._parts.pop(0), "more_body": bool(self._parts)}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


async def under_way(shedder: LoadShedder, *parts: bytes, fails: bool = False) -> Caller:
    caller = Caller(shedder, *parts, fails=fails)
    for _ in range(5):
        await asyncio.sleep(0)
    return caller


@pytest.mark.parametrize("fails", [False, True])
async def test_the_bytes_of_a_body_are_released_when_its_request_ends(fails: bool) -> None:
    shedder = LoadShedder(request_limit=10, body_bytes_limit=100)
    for _ in range(3):
        caller = await under_way(shedder, BODY[:40], BODY[40:], fails=fails)
        assert (shedder.held_bytes, shedder.under_way_count) == (80, 1)
        caller.go_on.set()
        await asyncio.gather(caller.task, return_exceptions=True)
        assert (shedder.held_bytes, shedder.under_way_count) == (0, 0)


async def test_a_body_that_exceeds_the_total_is_rejected_and_counts_nothing() -> None:
    shedder = LoadShedder(request_limit=10, body_bytes_limit=100)
    first = await under_way(shedder, BODY)
    second = await under_way(shedder, BODY[:20], BODY[20:])
    with pytest.raises(Refused):
        await second.task
    assert (shedder.held_bytes, shedder.under_way_count) == (80, 1)
    first.go_on.set()
    await first.task
    third = await under_way(shedder, BODY)
    third.go_on.set()
    await third.task
    assert shedder.held_bytes == 0


async def test_a_request_beyond_the_limit_is_rejected_and_one_that_sleeps_does_not_count() -> None:
    shedder = LoadShedder(request_limit=1, body_bytes_limit=100)
    first = await under_way(shedder, b"")
    away = await under_way(shedder, b"")
    await away.task
    assert away.sent[0]["status"] == 503
    with shedder.aside():
        second = await under_way(shedder, b"")
        assert not second.task.done()
    for caller in (first, second):
        caller.go_on.set()
        await caller.task
    assert shedder.under_way_count == 0
