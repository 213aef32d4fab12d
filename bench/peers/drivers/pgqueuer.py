"""PgQueuer, over asyncpg and uvloop."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"
from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench import record
from bench.peers.drivers import drive

BATCH = 1000


class Client:
    def __init__(self, queries: Any) -> None:
        self._queries = queries

    async def setup(self) -> None:
        await self._queries.install()

    async def submit(self, payloads: Sequence[drive.Payload]) -> None:
        for batch in drive.batches(payloads, BATCH):
            await self._queries.enqueue(["note"] * len(batch), [_bytes(payload) for payload in batch], [0] * len(batch))

    async def submit_one(self, payload: drive.Payload) -> None:
        await self._queries.enqueue("note", _bytes(payload))

    async def submit_at(self, jobs: Sequence[tuple[drive.Payload, float]]) -> None:
        for batch in drive.batches(jobs, BATCH):
            now = time.time()
            await self._queries.enqueue(
                ["note"] * len(batch),
                [_bytes(payload) for payload, _ in batch],
                [0] * len(batch),
                [timedelta(seconds=at - now) for _, at in batch],
            )


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    connection = await asyncpg.connect(drive.url())
    try:
        yield Client(Queries(AsyncpgDriver(connection)))
    finally:
        await connection.close()


def work() -> None:
    uvloop.run(_work())


async def _work() -> None:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(drive.url())))

    @queue.entrypoint("note")
    async def note(job: Job) -> None:
        record.append(json.loads(job.payload)["number"])

    await queue.run(batch_size=drive.settings()["batch_size"])


def _bytes(payload: drive.Payload) -> bytes:
    return json.dumps(payload).encode()
