"""One caller's connection: uvicorn's, with limits on what a caller may hold without a complete request.

The header of a request has to arrive in time and within a size, its body at a minimum rate; few requests may be sent ahead; and
when all places are taken, the connection idle for the longest time is closed. A rejection here is answered with a problem, as
everywhere, unless another answer is being sent."""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sexton.api.answers.problems import MEDIA_TYPE, Refused, document

HEAD_BYTES_LIMIT = 64 * 1024
HEADERS_LIMIT = 200
AHEAD_LIMIT = 100  # requests that a caller may send before the first of them is answered
PACE_BYTES_PER_S = 16 * 1024  # minimum rate of a body, once its time is up: 2 MiB may take two minutes
KEEP_ALIVE_S = 30  # between an answer and the next request
LINGER_S = 2.0  # for the rest of a rejected body, so that its caller reads the answer before the connection ends
FILES_ASIDE = 100  # open files that are not connections of callers


class ConnectionLimit:
    """How many connections may be open, and which of them are idle: they wait for a request."""

    def __init__(self, limit: int, receive_s: float) -> None:
        self.limit, self.receive_s = limit, receive_s
        self.waiting: OrderedDict[Connection, None] = OrderedDict()  # the longest idle first

    def has_room(self, taken: int) -> bool:
        """Makes room for one more, if necessary by closing an idle connection."""
        if taken <= self.limit:
            return True
        if not self.waiting:
            return False
        longest, _ = self.waiting.popitem(last=False)
        longest.transport.close()
        return True

    def end_slow(self, connections: Iterable[Any], now_s: float) -> None:
        """Ends connections that take too long."""
        for connection in list(connections):
            if isinstance(connection, Connection):
                connection.look(now_s)


class Connection(HttpToolsProtocol):
    def __init__(self, limit: ConnectionLimit, **given: Any) -> None:
        super().__init__(**given)
        self._limit = limit
        self._part: Literal["nothing", "head", "body", "rest"] = (
            "nothing"  # what is arriving; the rest belongs to a rejected body
        )
        self._since_s = self.loop.time()
        self._come_bytes = 0
        self._has_begun = False
        self._has_asked = False
        self._worked_on: RequestResponseCycle | None = None
        self._refusal: Refused | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limit.has_room(len(self.connections)):
            self._limit.waiting[self] = None
        else:
            headers = {"Retry-After": "1"}
            self._refuse(Refused("overloaded", "every connection is in use; try again shortly", headers=headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.waiting.pop(self, None)
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._worked_on is not None:  # uvicorn notifies only the newest, and an answer to any other would end in our log
            self._worked_on.disconnected = True
            self._worked_on.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._worked_on = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._has_begun = False
        super().data_received(data)
        if self._part == "head" and not self._has_begun:  # this data may contain other things before the header begins
            self._come_bytes += len(data)
            if self._come_bytes > HEAD_BYTES_LIMIT:
                self._refuse(_head_too_large(f"{HEAD_BYTES_LIMIT // 1024} KiB"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_begun = True
        self._begin("head")

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS_LIMIT:
            self._refusal = _head_too_large(f"{HEADERS_LIMIT} header fields")
            raise self._refusal
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES_LIMIT:
            self._refusal = _head_too_large(f"{HEAD_BYTES_LIMIT // 1024} KiB")
            raise self._refusal
        if len(self.pipeline) >= AHEAD_LIMIT:
            self._refusal = Refused("overloaded", f"more than {AHEAD_LIMIT} requests sent ahead; wait for an answer")
            raise self._refusal
        self._limit.waiting.pop(self, None)
        self._begin("body")
        super().on_headers_complete()
        self._has_asked = True

    def on_body(self, body: bytes) -> None:
        self._come_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._part == "body" and self._is_answered:
            self._begin("rest")
        elif self._part == "nothing":
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """For data that the parser cannot read, and for requests that were rejected while it read."""
        self._refuse(self._refusal or Refused("malformed", "this is not an HTTP/1.1 request"))

    def look(self, now_s: float) -> None:
        waited_s = now_s - self._since_s
        match self._part:
            case "nothing" if self._is_answered:
                if waited_s > (KEEP_ALIVE_S if self._has_asked else self._limit.receive_s):
                    self.transport.close()
            case "head" if waited_s > self._limit.receive_s:
                self._refuse(Refused("too_slow", f"the header of a request must arrive within {self._limit.receive_s:g} s"))
            case "body" if waited_s > self._limit.receive_s + self._come_bytes / PACE_BYTES_PER_S and not self.flow.read_paused:
                pace = f"{PACE_BYTES_PER_S // 1024} KiB per second"
                self._refuse(
                    Refused("too_slow", f"a body must arrive within {self._limit.receive_s:g} s, or at {pace} if it is long")
                )
            case "rest" if waited_s > LINGER_S:
                self.transport.close()
            case _:
                pass

    @property
    def _is_answered(self) -> bool:
        """No request is being handled."""
        return not self.pipeline and (not self._has_asked or self.cycle.response_complete)

    def _begin(self, part: Literal["nothing", "head", "body", "rest"]) -> None:
        self._part, self._since_s, self._come_bytes = part, self.loop.time(), 0

    def _wait(self) -> None:
        self._begin("nothing")
        if self._is_answered and not self.transport.is_closing():
            self._limit.waiting[self] = None

    def _refuse(self, refused: Refused) -> None:
        """Ends the connection. Between two answers, a problem would be mistaken for one of them."""
        if self.transport.is_closing():
            return
        if self._is_answered or (self._part == "body" and not self.pipeline and not self.cycle.response_started):
            self.transport.write(_written(refused, self.server_state.default_headers))
        self.transport.close()


def places(wanted: int) -> int:
    """How many connections this process can hold: the wanted number, or what the limit on open files allows; that limit is
    raised as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_ASIDE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - FILES_ASIDE))


def _head_too_large(limit: str) -> Refused:
    return Refused("head_too_large", f"the header of a request may have at most {limit}")


def _written(refused: Refused, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    problem = document(refused)
    body = msgspec.json.encode(problem)
    fields = {
        **{name.decode(): value.decode() for name, value in headers},
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "connection": "close",
        **refused.headers,
    }
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}", *(f"{name}: {fields[name]}" for name in fields)]
    return "\r\n".join([*lines, "", ""]).encode() + body
