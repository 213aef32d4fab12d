"""Hostile callers, in a process of their own: `python -m tests.abuse.attackers KIND ORDERS`. They connect only to this machine
and end by themselves; they print what they saw as one line of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import selectors
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


class Caller:
    """One connection, and what it received."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=10)
        self.socket.setblocking(False)
        self.heard = b""
        self.is_closed = False
        self.sent_bytes = 0

    def send(self, data: bytes) -> None:
        if not self.is_closed:
            try:
                self.sent_bytes += self.socket.send(data)
            except BlockingIOError:
                pass
            except OSError:
                self.hear()
                self.is_closed = True

    def hear(self) -> None:
        try:
            answer = self.socket.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            answer = b""
        self.heard += answer
        self.is_closed = self.is_closed or not answer

    @property
    def status(self) -> str:
        """Status of the first answer; `closed` or `open` if there was none."""
        return self.heard.split(b" ", 2)[1].decode() if self.heard else "closed" if self.is_closed else "open"


def crowd(port: int, count: int) -> list[Caller]:
    """As many as the limit on open files allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    callers = []
    for _ in range(min(count, hard - 50)):
        try:
            callers.append(Caller(port))
        except OSError:
            break
    return callers


def listen(callers: list[Caller], span_s: float, every_s: float = 0.05, speak: Any = lambda caller: None) -> float:
    """Lets each caller send from time to time, until all are closed or the time is up. Returns the seconds until then."""
    began_s = time.monotonic()
    with selectors.DefaultSelector() as ready:
        for caller in callers:
            ready.register(caller.socket, selectors.EVENT_READ, caller)
        spoke_s = 0.0
        while ready.get_map() and time.monotonic() - began_s < span_s:
            for key, _ in ready.select(every_s):
                key.data.hear()
                if key.data.is_closed:
                    ready.unregister(key.fileobj)
            if time.monotonic() - spoke_s >= every_s:
                spoke_s = time.monotonic()
                for caller in callers:
                    speak(caller)
    return time.monotonic() - began_s


def told(callers: list[Caller], **more: Any) -> dict[str, Any]:
    return {
        "opened": len(callers),
        "closed": sum(caller.is_closed for caller in callers),
        "statuses": Counter(caller.status for caller in callers),
        "codes": Counter(_code(caller.heard) for caller in callers if caller.heard),
        "sent_bytes_most": max((caller.sent_bytes for caller in callers), default=0),
        **more,
    }


def _code(heard: bytes) -> str:
    """`code` of the problem document, if the body is one and is complete."""
    head, _, body = heard.partition(b"\r\n\r\n")
    if b"application/problem+json" not in head:
        return "no problem document"
    try:
        return str(json.loads(body)["code"])
    except ValueError:
        return "cut short"


def silent(port: int, count: int, span_s: float) -> dict[str, Any]:
    callers = crowd(port, count)
    return told(callers, took_s=listen(callers, span_s))


def slow_heads(port: int, count: int, span_s: float, every_s: float = 1.0) -> dict[str, Any]:
    """A header that grows by one byte at a time."""
    callers = crowd(port, count)
    for caller in callers:
        caller.send(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    return told(callers, took_s=listen(callers, span_s, every_s, lambda caller: caller.send(b"a")))


def slow_bodies(port: int, count: int, span_s: float, every_s: float = 1.0) -> dict[str, Any]:
    """A body of a thousand bytes, one at a time."""
    callers = crowd(port, count)
    for caller in callers:
        caller.send(HEAD + b"Content-Length: 1000\r\n\r\n{")
    return told(callers, took_s=listen(callers, span_s, every_s, lambda caller: caller.send(b" ")))


def parked_bodies(port: int, count: int, span_s: float, size: int) -> dict[str, Any]:
    """Bodies that arrive fast but without their last byte."""
    callers = crowd(port, count)
    data = b'{"handler":"a","payload":"' + b"x" * (size - 26)
    head = HEAD + f"Content-Length: {size + 1}\r\n\r\n".encode()
    for caller in callers:
        caller.send(head)

    def more(caller: Caller) -> None:
        for _ in range(16):
            begun = caller.sent_bytes - len(head)
            if begun < size and not caller.heard:
                caller.send(data[begun : min(begun + 262_144, size)])

    return told(callers, took_s=listen(callers, span_s, 0.01, more))


def endless_heads(port: int, count: int, span_s: float, many: bool = False) -> dict[str, Any]:
    """One endless header, or endless headers, as fast as the server reads them."""
    callers = crowd(port, count)
    piece = b"X-A: b\r\n" * 8_000 if many else b"a" * 64_000
    for caller in callers:
        caller.send(b"GET /v1/jobs HTTP/1.1\r\n" + (b"" if many else b"X-A: "))
    return told(callers, took_s=listen(callers, span_s, 0.0, lambda caller: caller.send(piece)))


def endless_body(port: int, span_s: float, total: int, chunked: bool = False) -> dict[str, Any]:
    """A body of `total` bytes, sent whatever the server answers."""
    (caller,) = crowd(port, 1)
    length = b"Transfer-Encoding: chunked" if chunked else f"Content-Length: {total}".encode()
    piece = b"x" * 65_536
    caller.socket.setblocking(True)
    caller.socket.settimeout(span_s)
    began_s, answered_bytes = time.monotonic(), 0
    try:
        caller.socket.sendall(HEAD + length + b"\r\n\r\n")
        while caller.sent_bytes < total and time.monotonic() - began_s < span_s:
            caller.socket.sendall(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
            caller.sent_bytes += len(piece)
            if not caller.heard:
                answered_bytes = caller.sent_bytes
            caller.socket.setblocking(False)
            caller.hear()  # to the end: head and body may arrive separately
            caller.socket.settimeout(span_s)
        listen([caller], span_s=0.5)
    except OSError:
        caller.hear()
        caller.is_closed = True
    return told([caller], took_s=time.monotonic() - began_s, answered_bytes=answered_bytes)


def ahead(port: int, count: int, span_s: float) -> dict[str, Any]:
    """Requests one after the other on one connection, without waiting for answers."""
    (caller,) = crowd(port, 1)
    request = b"GET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n"
    requests = request * (count + 1)
    took_s = listen([caller], span_s, 0.001, lambda caller: caller.send(requests[caller.sent_bytes % len(request) :]))
    return {**told([caller], took_s=took_s), "codes": {}, "answers": caller.heard.count(b"HTTP/1.1 200")}


class Flooder(asyncio.Protocol):
    """Submits up to `depth` requests ahead of their answers, and keeps the ids of acknowledged jobs."""

    def __init__(self, tally: Counter[str], ids: list[str], wrong: list[str]) -> None:
        self._tally, self._ids, self._wrong = tally, ids, wrong
        self._heard = b""
        self.transport: asyncio.Transport | None = None
        self.ahead = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.ahead:
            self._tally["cut off"] += self.ahead

    def data_received(self, data: bytes) -> None:
        self._heard += data
        while (end := self._heard.find(b"\r\n\r\n")) >= 0:
            head = self._heard[:end].lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(self._heard) < end + 4 + size:
                return
            body, self._heard = self._heard[end + 4 : end + 4 + size], self._heard[end + 4 + size :]
            self._note(head, body)

    def _note(self, head: bytes, body: bytes) -> None:
        status = head[9:12].decode()
        self.ahead -= 1
        self._tally[status] += 1
        if status == "201":
            self._ids.append(json.loads(body)["id"])
        elif b"application/problem+json" not in head:
            self._wrong.append(f"{head!r} {body!r}"[:300])


def flood(port: int, connections: int, span_s: float, rate: float, depth: int, ids_path: str) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    return asyncio.run(_flood(port, connections, span_s, rate, depth, Path(ids_path)))


async def _flood(port: int, connections: int, span_s: float, rate: float, depth: int, ids_path: Path) -> dict[str, Any]:
    tally: Counter[str] = Counter()
    ids: list[str] = []
    wrong: list[str] = []
    body = json.dumps({"handler": "tick", "payload": {"seconds": 0}}).encode()
    request = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    loop = asyncio.get_running_loop()
    made = [loop.create_connection(lambda: Flooder(tally, ids, wrong), HOST, port) for _ in range(connections)]
    flooders = [flooder for _, flooder in await asyncio.gather(*made)]
    began_s, sent = loop.time(), 0
    while (passed_s := loop.time() - began_s) < span_s:
        owed = int(rate * passed_s) - sent
        for flooder in flooders:
            room = min(depth - flooder.ahead, 1 + owed // connections)
            if flooder.transport is not None and room > 0:
                flooder.transport.write(request * room)
                flooder.ahead += room
                sent += room
        await asyncio.sleep(0.01)
    attempted = int(rate * (loop.time() - began_s))
    with_answers = loop.time() + 30
    while any(flooder.ahead and flooder.transport for flooder in flooders) and loop.time() < with_answers:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    ids_path.write_text("\n".join(ids))  # noqa: ASYNC240
    unanswered = sum(flooder.ahead for flooder in flooders if flooder.transport is not None)
    return {
        "attempted": attempted,
        "sent": sent,
        "acknowledged": len(ids),
        "tally": tally,
        "unanswered": unanswered,
        "wrong": wrong[:3],
        "took_s": loop.time() - began_s,
    }


KINDS = {
    made.__name__: made for made in (silent, slow_heads, slow_bodies, parked_bodies, endless_heads, endless_body, ahead, flood)
}

if __name__ == "__main__":
    print(json.dumps(KINDS[sys.argv[1]](**json.loads(sys.argv[2]))))  # noqa: T201
