"""The listener: receives notifications, and reconnects by itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from sexton.store.database import connect
from sexton.store.postgres import wakeups
from sexton.store.postgres.wakeups import CANCEL, DUE, READY, Listener
from sexton.store.work import runs
from sexton.telemetry.events import Emit, Event, ServiceFailed
from tests.store.support import submit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.store.support import Conn

BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'sexton listener' AND datname = current_database()"


@asynccontextmanager
async def _listening(
    url: str, *channels: str, emit: Emit = lambda _: None
) -> AsyncIterator[tuple[Listener, asyncio.Queue[tuple[str, str]]]]:
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    listener = Listener(url, channels, lambda channel, payload: heard.put_nowait((channel, payload)), emit=emit, retry_s=0.01)
    task = asyncio.create_task(listener.run())
    try:
        yield listener, heard
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_every_channel_gets_one_empty_notification_at_the_start(database_url: str) -> None:
    """B10: notifications may have been missed before."""
    async with _listening(database_url, READY, DUE, CANCEL) as (listener, heard):
        first = [await heard.get() for _ in range(3)]
        assert first == [(READY, ""), (DUE, ""), (CANCEL, "")]
        assert listener.connected


async def test_notifications_of_a_submission_and_an_announcement_arrive(database_url: str, connection: Conn) -> None:
    """B10."""
    async with _listening(database_url, READY, DUE) as (_, heard):
        for _ in range(2):
            await heard.get()
        await submit(connection, queue="mail")
        assert await heard.get() == (READY, "mail")
        await runs.announce(connection, [], due_soon=True)
        assert await heard.get() == (DUE, "")


async def test_the_listener_comes_back_after_its_backend_was_terminated(database_url: str, connection: Conn) -> None:
    """B10, D4: with the empty notification again, and on the same channels."""
    async with _listening(database_url, READY) as (listener, heard):
        await heard.get()
        for _ in range(3):
            (row,) = await connection.fetch(BACKENDS)
            await connection.fetch("SELECT pg_terminate_backend($1)", row["pid"])
            assert await heard.get() == (READY, "")
            assert listener.connected
        await submit(connection)
        assert await heard.get() == (READY, "default")


async def test_the_listener_waits_for_an_unreachable_server(database_url: str) -> None:
    """D4: it keeps trying and shows that it is not connected."""
    async with _listening("postgresql://127.0.0.1:1/nothing", READY) as (listener, heard):
        await asyncio.sleep(0.05)
        assert not listener.connected
        assert heard.empty()


async def test_a_cancelled_listener_leaves_no_connection(database_url: str, connection: Conn) -> None:
    """F4: the number of connections is bounded."""
    async with _listening(database_url, READY) as (listener, heard):
        await heard.get()
    assert not listener.connected
    while await connection.fetch(BACKENDS):  # noqa: ASYNC110  (only the server knows)
        await asyncio.sleep(0.005)


async def test_no_error_of_the_server_ends_the_listener(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: when it may connect again it receives notifications again, and the reason of the failure is logged once."""
    refusals = [asyncpg.InsufficientPrivilegeError("permission denied for database")] * 3

    async def refused_at_first(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await connect(*args, **options)

    monkeypatch.setattr(wakeups, "connect", refused_at_first)
    told: list[Event] = []
    async with _listening(database_url, READY, emit=told.append) as (listener, heard):
        assert await heard.get() == (READY, "")
        assert listener.connected
    assert [type(event.error) for event in told if isinstance(event, ServiceFailed)] == [asyncpg.InsufficientPrivilegeError]
