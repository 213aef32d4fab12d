"""Chancy, with its asyncio executor, over uvloop."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"
from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import uvloop
from chancy import Chancy, Queue, Worker, job

from bench import record
from bench.peers.drivers import drive

BATCH = 1000


@job(queue="bench")
async def note(*, number: int, pad: str) -> None:
    record.append(number)


class Client:
    def __init__(self, app: Any) -> None:
        self._app = app

    async def setup(self) -> None:
        await self._app.migrate()
        await self._app.declare(Queue("bench", executor=Chancy.Executor.Async, **drive.settings()), upsert=True)

    async def submit(self, payloads: Sequence[drive.Payload]) -> None:
        await self._push(note.job.with_kwargs(**payload) for payload in payloads)

    async def submit_one(self, payload: drive.Payload) -> None:
        await self._app.push(note.job.with_kwargs(**payload))

    async def submit_at(self, jobs: Sequence[tuple[drive.Payload, float]]) -> None:
        await self._push(
            note.job.with_kwargs(**payload).with_scheduled_at(datetime.fromtimestamp(at, UTC)) for payload, at in jobs
        )

    async def _push(self, jobs: Iterable[Any]) -> None:
        async for _ in self._app.push_many(list(jobs), batch_size=BATCH):
            pass


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    async with _app() as app:
        yield Client(app)


def work() -> None:
    uvloop.run(_work())


async def _work() -> None:
    async with _app() as app, Worker(app) as worker:
        await worker.wait_for_shutdown()


def _app() -> Any:
    return Chancy(drive.url(), log=logging.getLogger("chancy"))  # its own logger writes a line per batch
