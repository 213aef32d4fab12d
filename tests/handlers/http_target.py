"""A real HTTP server for tests of HTTP jobs: it answers byte for byte what the test says, valid or not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from sexton.clock import Clock, SystemClock
from sexton.domain.outbound import Allowed, Ports, Rules
from sexton.domain.targets import HttpTarget
from sexton.handlers.breaker import PATIENCE, Patience
from sexton.handlers.context import Call, Context
from sexton.handlers.handle import Handle
from sexton.handlers.http import HttpCalls
from sexton.handlers.outbound import Lookup, Outbound
from sexton.handlers.secrets import Secrets

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HERE = "127.0.0.1:*"


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


Answering = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    """Underscores in names become hyphens."""
    lines = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Somehow\r\n{head}\r\n".encode() + body


class Server:
    """`answering` may be changed at any time; `received` keeps every request."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.answering: Answering = self.always(answer())
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def always(self, *answers: bytes) -> Answering:
        """Answers with these in turn, then always with the last."""
        left = list(answers)

        async def answering(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(left.pop(0) if len(left) > 1 else left[0])

        return answering

    def says(self, *answers: bytes) -> None:
        self.answering = self.always(*answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (received := await _read(reader)) is not None:
                self.received.append(received)
                await self.answering(received, writer)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


class Caller:
    """The handler as a worker has it, and the calls that a test makes through it."""

    def __init__(
        self,
        *,
        allow: Sequence[str] = (HERE,),
        lookup: Lookup | None = None,
        secrets: dict[str, str] | None = None,
        clock: Clock | None = None,
        permit_limit: int = 32,
        patience: Patience = PATIENCE,
        **options: Any,
    ) -> None:
        rules = Rules(tuple(Allowed.of(entry) for entry in allow), Ports.of(["80", "443"]))
        self.outbound = Outbound(rules, lookup)
        self.calls = HttpCalls(
            self.outbound,
            Secrets({f"SEXTON_SECRET_{name}": value for name, value in (secrets or {}).items()}),
            clock=clock or SystemClock(),
            rng=Random(1),
            permit_limit=permit_limit,
            patience=patience,
            **options,
        )

    def start(self, target: HttpTarget, **facts: Any) -> Handle:
        call = call_of(target, **facts)
        return self.calls.start(call, Context(call))

    async def close(self) -> None:
        await self.calls.close()
        self.outbound.close()

    async def call(self, target: HttpTarget, **facts: Any) -> Any:
        return await self.start(target, **facts).done


Calling = Callable[..., Caller]


@asynccontextmanager
async def callers() -> AsyncIterator[Calling]:
    """Creates callers, and closes their connections at the end."""
    made: list[Caller] = []

    def make(**options: Any) -> Caller:
        made.append(Caller(**options))
        return made[-1]

    try:
        yield make
    finally:
        for caller in made:
            await caller.close()


def call_of(target: HttpTarget, **facts: Any) -> Call:
    known: dict[str, Any] = {
        "job_id": UUID(int=1),
        "run_id": UUID(int=2),
        "attempt": 1,
        "task": "sexton.http",
        "name": None,
        "tenant": "acme",
        "queue": "default",
        "fire_at": NOON,
        "due_at": NOON,
        "trace": None,
        "key": None,
        "arguments": {},
        "target": target,
        "payload_json": '{"n":1}',
    }
    return Call(**{**known, **facts})
