"""Sexton itself, driven in the same way as the peers."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from bench.peers.drivers import drive
from sexton import App
from sexton.store import migrations
from sexton.store.database import Postgres
from sexton.store.fleet import cluster

BATCH = 2000


class Client:
    def __init__(self, app: App, task: str = "note") -> None:
        self._app, self._task = app, task

    async def setup(self) -> None:
        database = await Postgres.open(drive.url())
        await migrations.migrate(database)
        await cluster.require_home(database)
        await database.close()

    async def submit(self, payloads: Sequence[drive.Payload]) -> None:
        for batch in drive.batches([self._app.request(self._task, payload) for payload in payloads], BATCH):
            await self._app.submit_many(batch)

    async def submit_one(self, payload: drive.Payload) -> None:
        await self._app.submit(self._task, payload)

    async def submit_at(self, jobs: Sequence[tuple[drive.Payload, float]]) -> None:
        requests = [self._app.request(self._task, payload, run_at=datetime.fromtimestamp(at, UTC)) for payload, at in jobs]
        for batch in drive.batches(requests, BATCH):
            await self._app.submit_many(batch)


@asynccontextmanager
async def client(task: str = "note") -> AsyncIterator[Client]:
    app = App(drive.url())  # connects with the first submission: during setup there is no schema yet
    try:
        yield Client(app, task)
    finally:
        await app.close()


def work() -> None:
    become("worker", "bench.app:app")


def schedule() -> None:
    become("scheduler")


def become(*arguments: str) -> None:
    os.environ["SEXTON_DATABASE_URL"] = drive.url()
    os.execv(sys.executable, [sys.executable, "-m", "sexton", *arguments])
