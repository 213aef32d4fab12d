"""A whole scheduler node in this process: due runs become ready on time, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from sexton.clock import SystemClock
from sexton.domain.job import submission
from sexton.scheduler.process import Scheduler
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.store.work import jobs
from sexton.telemetry.events import Event, LeadershipChanged, Promoted
from tests.rig import LONG_S, Kind

if TYPE_CHECKING:
    Conn = asyncpg.Connection[Any]


class Running:
    def __init__(self, database: Postgres, direct_url: str | None) -> None:
        self._heard: asyncio.Queue[Event] = asyncio.Queue()
        self.stop = asyncio.Event()
        self.scheduler = Scheduler(
            database,
            Settings(),
            direct_url=direct_url,
            clock=SystemClock(),
            emit=self._heard.put_nowait,
            rng=Random(1),
        )
        self.task = asyncio.create_task(self.scheduler.run(self.stop))

    async def heard(self, kind: type[Kind]) -> Kind:
        async with asyncio.timeout(LONG_S):
            while True:
                event = await self._heard.get()
                if isinstance(event, kind):
                    return event

    async def out(self) -> None:
        self.stop.set()
        async with asyncio.timeout(LONG_S):
            await self.task


@pytest.fixture(params=["direct", "pooled"])
async def running(request: pytest.FixtureRequest, database: Postgres, database_url: str) -> AsyncIterator[Running]:
    running = Running(database, database_url if request.param == "direct" else None)
    yield running
    await running.out()


async def submit(connection: Conn, delay_s: float) -> None:
    await jobs.submit(connection, [submission("a", {}, delay=delay_s)])


async def test_it_takes_the_lead_and_promotes_in_time(running: Running, connection: Conn) -> None:
    """B2, B8: also a run submitted for half a second from now while the promoter rests for two."""
    assert len((await running.heard(LeadershipChanged)).partitions) == 64
    for _ in range(3):
        await submit(connection, 0.3)
        await running.heard(Promoted)
        late_s = await connection.fetchval(
            "SELECT extract(epoch FROM clock_timestamp() - max(due_at))::float8 FROM sexton.runs"
        )
        assert 0 <= late_s < 1.0


async def test_it_leaves_nothing_behind(running: Running, connection: Conn) -> None:
    """B2: the next node does not have to wait until its heartbeat expires."""
    await running.heard(LeadershipChanged)
    await running.out()
    assert await connection.fetchval("SELECT count(*) FROM sexton.nodes") == 0
    assert await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7308") == 0


async def test_a_new_leader_examines_its_partitions_at_once(database: Postgres, connection: Conn) -> None:
    """B8: runs that were due before do not wait for the next look."""
    await submit(connection, 0.001)
    running = Running(database, None)
    assert (await running.heard(Promoted)).overdue is False
    await running.out()
