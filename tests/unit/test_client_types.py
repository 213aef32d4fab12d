"""`Client` and `AsyncClient` have their operations from one body. `assert_type` is checked by mypy (`make lint`)."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import httpx
import pytest

from sexton import AsyncClient, Client, wire
from sexton.client.remote.async_client import AsyncHandle
from sexton.client.remote.client import Handle
from sexton.client.remote.operations import Operations
from sexton.client.remote.sync_and_async import Operation, Stream, finished

EVENT = (
    b'data: {"type": "started", "at": "2030-01-01T00:00:00Z", "job_id": "0199a1b2-0000-7000-8000-000000000001", '
    b'"handler": "a", "queue": "q", "tenant": "t"}\n\n'
)


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Events without an end."""

    is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield EVENT

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield EVENT

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


def transport(events: Endless | None = None) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/events":
            return httpx.Response(200, stream=events or Endless())
        return httpx.Response(200, json={"name": "x"})

    return httpx.MockTransport(answer)


async def test_a_call_of_the_blocking_client_returns_its_answer_even_beside_an_event_loop() -> None:
    with Client("http://api", transport=transport()) as client:
        removed = client.remove_limit("x")
        assert_type(removed, wire.Removed)
        assert removed == wire.Removed(name="x")


async def test_a_call_of_the_asynchronous_client_is_awaited() -> None:
    async with AsyncClient("http://api", transport=transport()) as client:
        removed = await client.remove_limit("x")
        assert_type(removed, wire.Removed)
        assert removed == wire.Removed(name="x")


async def test_a_blocking_stream_that_is_abandoned_closes_its_connection() -> None:
    endless = Endless()
    with Client("http://api", transport=transport(endless)) as client:
        events = client.events()
        assert_type(events, Iterator[wire.Event])
        assert [next(events).type for _ in range(3)] == ["started"] * 3
        assert not endless.is_closed
        assert inspect.isgenerator(events)
        events.close()
        assert endless.is_closed


async def test_a_stream_of_the_asynchronous_client_that_is_abandoned_closes_its_connection() -> None:
    endless = Endless()
    async with AsyncClient("http://api", transport=transport(endless)) as client:
        events = client.events()
        assert_type(events, AsyncIterator[wire.Event])
        assert [(await anext(events)).type for _ in range(3)] == ["started"] * 3
        assert not endless.is_closed
        assert inspect.isasyncgen(events)
        await events.aclose()
        assert endless.is_closed


def types_of_what_needs_an_api(client: Client, handle: Handle) -> None:
    """Only read by mypy. An unused `type: ignore` is an error, so each of them is a check."""
    assert_type(client.job("x"), wire.Job)
    assert_type(client.jobs(tag="a", limit=3), Iterator[wire.Job])
    assert_type(client.workers(), list[wire.Worker])
    assert_type(client.submit("a", delay="1s"), Handle)
    assert_type(client.submit_chunks([]), Iterator[list[wire.BatchItem]])
    assert_type(client.set_tenant("a", weight=2), wire.TenantView)
    handle.result(timeout="1s")
    handle.result(within="1s")  # type: ignore[call-arg]
    client.job(1)  # type: ignore[arg-type]
    client.set_tenant("a", wieght=2)  # type: ignore[call-arg]
    client.set_tenant("a", weight="2")  # type: ignore[arg-type]


async def types_of_what_needs_an_api_awaited(client: AsyncClient, handle: AsyncHandle) -> None:
    """Only read by mypy, as above."""
    assert_type(await client.job("x"), wire.Job)
    assert_type(client.jobs(tag="a", limit=3), AsyncIterator[wire.Job])
    assert_type(await client.workers(), list[wire.Worker])
    assert_type(await client.submit("a", delay="1s"), AsyncHandle)
    assert_type(client.submit_chunks([]), AsyncIterator[list[wire.BatchItem]])
    assert_type(await client.set_tenant("a", weight=2), wire.TenantView)
    await handle.result(timeout="1s")
    await client.job(1)  # type: ignore[arg-type]
    await client.set_tenant("a", wieght=2)  # type: ignore[call-arg]


def test_signatures_and_documentation_are_those_of_the_one_body() -> None:
    assert str(inspect.signature(Client.job)) == "(self, job_id: 'UUID | str') -> 'wire.Job'"
    assert str(inspect.signature(AsyncClient.job)) == "(self, job_id: 'UUID | str') -> 'wire.Job'"
    assert inspect.iscoroutinefunction(AsyncClient.job)
    assert not inspect.iscoroutinefunction(Client.job)
    assert inspect.signature(Client.jobs).return_annotation == "Iterator[wire.Job]"
    assert inspect.signature(AsyncClient.jobs).return_annotation == "AsyncIterator[wire.Job]"
    assert inspect.signature(Client.events).return_annotation == "Iterator[wire.Event]"
    for client in (Client, AsyncClient):
        assert (client.why.__name__, inspect.getdoc(client.why)) == ("why", "Why it has or has not run.")


def test_no_operation_is_written_for_one_client_alone() -> None:
    """Except `submit`, which returns a handle of its own kind, and closing."""
    operations = {name for name, found in inspect.getmembers_static(Operations) if isinstance(found, Operation | Stream)}
    assert len(operations) > 50
    for client in (Client, AsyncClient):
        assert {name for name in vars(client) if not name.startswith("_")} == {"submit", "submit_request", "close"}
        assert operations <= set(dir(client))


def test_a_coroutine_that_would_wait_is_rejected_by_the_blocking_client() -> None:
    """Otherwise it would return before it is done."""

    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="event loop"):
        finished(waits())
