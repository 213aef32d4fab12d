"""Procrastinate, over psycopg."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby

from procrastinate import App, PsycopgConnector

from bench import record
from bench.peers.drivers import drive

BATCH = 1000

app = App(connector=PsycopgConnector(conninfo=drive.url(), max_size=drive.settings()["pool_size"]))


@app.task(name="note", queue="bench")
async def note(number: int, pad: str) -> None:
    record.append(number)


class Client:
    async def setup(self) -> None:
        await app.schema_manager.apply_schema_async()

    async def submit(self, payloads: Sequence[drive.Payload]) -> None:
        for batch in drive.batches(payloads, BATCH):
            await note.batch_defer_async(*batch)

    async def submit_one(self, payload: drive.Payload) -> None:
        await note.defer_async(**payload)

    async def submit_at(self, jobs: Sequence[tuple[drive.Payload, float]]) -> None:
        for at, together in groupby(jobs, key=lambda job: job[1]):  # one bulk call takes one due time
            at_that_time = note.configure(schedule_at=datetime.fromtimestamp(at, UTC))
            for batch in drive.batches([payload for payload, _ in together], BATCH):
                await at_that_time.batch_defer_async(*batch)


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    async with app.open_async():
        yield Client()


def work() -> None:
    asyncio.run(_work())


async def _work() -> None:
    settings = drive.settings()
    async with app.open_async():
        await app.run_worker_async(
            queues=["bench"],
            concurrency=settings["concurrency"],
            fetch_job_polling_interval=settings["fetch_job_polling_interval"],
        )
