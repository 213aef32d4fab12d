"""A worker that can no longer work. With real processes: tests/process/test_hostile_handlers.py."""

from __future__ import annotations

import asyncio

from sexton.store.database import Postgres
from sexton.telemetry.events import Event, WorkerDisabled
from sexton.worker.vitals import Vitals


async def test_closed_connections_are_opened_again_to_return_the_runs(database_url: str) -> None:
    database = await Postgres.open(database_url)
    events: list[Event] = []
    disabled = asyncio.Event()
    vitals = Vitals([database], disabled.set, emit=events.append)
    await vitals.run_once()
    assert not disabled.is_set()
    await database.close()
    await vitals.run_once()
    assert disabled.is_set()
    async with database.connection() as connection:
        assert await connection.fetch("SELECT 1")
    await database.close()
    await vitals.run_once()
    await database.close()
    assert [type(event) for event in events] == [WorkerDisabled], "told once"


async def test_the_end_of_a_part_disables_the_worker_unless_the_worker_ends_it() -> None:
    for is_leaving in (False, True):
        events: list[Event] = []
        disabled = asyncio.Event()
        vitals = Vitals([], disabled.set, emit=events.append)
        part = asyncio.create_task(_work(), name="sexton intake")
        vitals.watch([part])
        if is_leaving:
            vitals.rest()
        part.cancel()
        await asyncio.wait([part])
        await asyncio.sleep(0)
        assert disabled.is_set() is not is_leaving
        assert ["sexton intake" in event.reason for event in events if isinstance(event, WorkerDisabled)] == [True] * (
            not is_leaving
        )


async def _work() -> None:
    await asyncio.Event().wait()
