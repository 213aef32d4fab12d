"""The API behind a real socket: start, stop, ports, and the stream of events."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from sexton.api import live_stream, process
from sexton.api.process import ApiProcess
from sexton.clock import SystemClock
from sexton.errors import SextonError
from sexton.ids import entropy
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.telemetry.events import ApiExposed, ApiListening, Event, ServiceFailed
from tests.api.support import bury


@dataclass
class Served:
    address: str
    http: httpx.AsyncClient
    stop: asyncio.Event
    running: asyncio.Task[None]
    events: list[Event] = field(default_factory=list)


@asynccontextmanager
async def served(database: Postgres, **settings: Any) -> AsyncIterator[Served]:
    heard: list[Event] = []
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    chosen = Settings(**{"api_port": 0, **settings})
    api = ApiProcess(database, chosen, clock=SystemClock(), emit=heard.append, rng=entropy())
    running = asyncio.create_task(api.run(stop, ready=ready.set_result))
    await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    async with httpx.AsyncClient(base_url=ready.result().replace("0.0.0.0", "127.0.0.1"), timeout=20) as http:
        yield Served(ready.result(), http, stop, running, heard)
    stop.set()
    await running
    assert not [event for event in heard if isinstance(event, ServiceFailed)]


class Stream:
    """Server-sent events, one at a time."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self.last_id = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        kind = ""
        async for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                return kind, json.loads(line[6:])
        raise EOFError

    async def comment(self) -> str:
        async for line in self._lines:
            if line.startswith(":"):
                return line
        raise EOFError


@asynccontextmanager
async def listening(http: httpx.AsyncClient, query: str = "", last_id: str = "") -> AsyncIterator[Stream]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with http.stream("GET", f"/v1/events{query}", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in response.headers
        stream = Stream(response)
        assert await stream.comment() == ": listening"
        yield stream


async def submit(http: httpx.AsyncClient, **job: Any) -> str:
    response = await http.post("/v1/jobs", json={"handler": "a", **job})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def test_it_listens_on_loopback_and_prints_its_address(database: Postgres) -> None:
    async with served(database) as api:
        assert api.address.startswith("http://127.0.0.1:")
        response = await api.http.get("/healthz")
        assert response.status_code == 200
        assert "server" not in response.headers
        assert [type(event) for event in api.events] == [ApiListening]


async def test_beyond_loopback_it_warns_that_it_has_no_authentication(database: Postgres) -> None:
    async with served(database, api_host="0.0.0.0") as api:
        assert [type(event) for event in api.events] == [ApiListening, ApiExposed]
    assert process.is_loopback("::1")
    assert process.is_loopback("localhost")
    assert not process.is_loopback("example.org")


async def test_a_port_in_use_is_one_clear_line(database: Postgres) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SextonError, match=f"port {port} on 127.0.0.1 is in use .* SEXTON_API_PORT"):
            async with served(database, api_port=port):
                pass
    with pytest.raises(SextonError, match="SEXTON_API_HOST"):
        async with served(database, api_host="no.such.host.invalid"):
            pass


async def test_stopping_ends_streams_at_once_and_lets_requests_end(database: Postgres) -> None:
    async with served(database) as api, listening(api.http) as stream:
        job_id = await submit(api.http)
        waiting = asyncio.create_task(api.http.get(f"/v1/jobs/{job_id}?wait=60s"))
        assert (await stream.next())[0] == "submitted"
        async with asyncio.timeout(5):
            api.stop.set()
            with pytest.raises(EOFError):
                await stream.next()
            assert (await waiting).json()["status"] == "pending"
            await api.running


async def test_a_body_that_is_too_large_is_rejected_before_it_has_arrived(database: Postgres) -> None:
    """F4."""
    async with served(database) as api:
        port = int(api.address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n{"
        )
        assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


async def test_a_caller_that_disconnects_is_not_a_server_error(database: Postgres) -> None:
    async with served(database) as api:
        port = int(api.address.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{")
        await writer.drain()
        await api.http.get("/healthz")
        writer.close()
        await writer.wait_closed()
        await api.http.get("/healthz")


async def test_the_transitions_of_a_job_are_streamed_as_they_happen(database: Postgres) -> None:
    """One event per transition, filtered, each with an id to resume from."""
    async with served(database) as api:
        async with listening(api.http, "?tenant=mine") as stream:
            await submit(api.http, tenant="other")
            job_id = await submit(api.http, tenant="mine")
            kind, event = await stream.next()
            assert (kind, event["type"], event["job_id"], event["handler"]) == ("submitted", "submitted", job_id, "a")
            await bury(database)
            assert (await stream.next())[0] == "started"
            kind, event = await stream.next()
            assert (kind, event["status"], event["ending"], event["attempt"]) == ("dead_lettered", "failed", "failed", 1)
            last_id = stream.last_id
        async with listening(api.http, "?type=retrying", "0001-01-01T00:00:00Z"):
            missed = await submit(api.http, tenant="mine")
        async with listening(api.http, "?tenant=mine&type=submitted", last_id) as stream:
            seen = []
            while missed not in seen:
                seen.append((await stream.next())[1]["job_id"])
            later = await submit(api.http, tenant="mine")
            assert (await stream.next())[1]["job_id"] == later
        for query, header in (("?colour=red", ""), ("?job_id=7", ""), ("", "nonsense"), ("", "2026-01-01")):
            headers = {"Last-Event-ID": header} if header else {}
            assert (await api.http.get(f"/v1/events{query}", headers=headers)).status_code == 422


async def test_the_database_is_polled_only_while_there_is_a_listener(
    database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B10: the tailer starts with the first listener and ends with the last; a comment keeps an idle stream alive."""
    monkeypatch.setattr(live_stream, "HEARTBEAT_S", 0.05)
    async with served(database) as api:
        assert _tailers() == 0
        async with listening(api.http) as stream, listening(api.http, "?tenant=none"):
            assert await stream.comment() == ": still here"
            assert _tailers() == 1
        async with asyncio.timeout(5):
            while _tailers():  # noqa: ASYNC110  (until the server has noticed)
                await asyncio.sleep(0.01)


async def test_a_listener_that_is_too_slow_is_disconnected(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_stream, "QUEUE_LIMIT", 3)
    streams = live_stream.LiveStream(database, clock=SystemClock(), emit=lambda _event: None, rng=entropy())
    heard = await streams.listen(lambda _transition: True)
    async with served(database) as api:
        response = await api.http.post("/v1/jobs/batch", json=[{"handler": "a"}] * 10)
        assert response.status_code == 201
    await streams.run_once()
    assert [transition async for transition in heard] == []
    assert _tailers() == 0


def _tailers() -> int:
    return sum(task.get_name() == live_stream.LiveStream.name for task in asyncio.all_tasks() if not task.cancelling())
