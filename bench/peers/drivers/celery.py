"""Celery over Redis. Redis keeps the jobs in memory and saves from time to time: a job is not durable when a call returns."""

# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"
from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from celery import Celery

from bench import record
from bench.peers.drivers import drive

app = Celery("bench", broker=drive.url())
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=drive.settings()["worker_prefetch_multiplier"],
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="note")
def note(number: int, pad: str) -> None:
    record.append(number)


class Client:
    async def setup(self) -> None:
        """Redis needs no setup."""

    async def submit(self, payloads: Sequence[drive.Payload]) -> None:
        with app.producer_or_acquire() as producer:  # there is no bulk call
            for payload in payloads:
                note.apply_async(kwargs=payload, producer=producer)

    async def submit_one(self, payload: drive.Payload) -> None:
        note.apply_async(kwargs=payload)

    async def submit_at(self, jobs: Sequence[tuple[drive.Payload, float]]) -> None:
        with app.producer_or_acquire() as producer:
            for payload, at in jobs:
                note.apply_async(kwargs=payload, eta=datetime.fromtimestamp(at, UTC), producer=producer)


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    yield Client()


def work() -> None:
    settings = drive.settings()
    options = ("--pool", settings["pool"], "--concurrency", str(settings["concurrency"]), "--loglevel", "WARNING")
    name = f"bench{os.getpid()}@localhost"
    quiet = ("--without-gossip", "--without-mingle", "--hostname", name)
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "bench.peers.drivers.celery", "worker", *options, *quiet])
