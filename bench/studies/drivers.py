"""The driver of the claim loop: asyncpg compared with psycopg 3 (docs/adr/018).

Each claims and finishes the same runs by the product's own statements, including the store's work around them: rows become
`Claimed`, reports become one JSON text. Sexton does not depend on psycopg: install `psycopg[binary]`, and `uvloop` for
--uvloop, into a separate folder and put that into PYTHONPATH."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from bench.server import Server
from sexton.domain import run
from sexton.domain.job import submission
from sexton.domain.outcome import Succeeded
from sexton.domain.run import Claimed
from sexton.store.database import _SERVER_SETTINGS
from sexton.store.fleet import workers
from sexton.store.work import jobs, runs

from .testbed import Meter, say, since, study_server, tell

RUNS = 50_000
DRIVERS = ("asyncpg", "psycopg", "psycopg-text", "psycopg-pipeline")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.studies.drivers", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 250])
    parser.add_argument("--drivers", nargs="+", default=list(DRIVERS), choices=DRIVERS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--uvloop", action="store_true", help="on uvloop instead of asyncio's own loop")
    arguments = parser.parse_args()
    run_loop = importlib.import_module("uvloop").run if arguments.uvloop else asyncio.run
    run_loop(_study(arguments, "uvloop" if arguments.uvloop else "asyncio"))


async def _study(arguments: argparse.Namespace, loop: str) -> None:
    async with study_server() as server:
        for repetition in range(arguments.repeat):
            for batch in arguments.batches:
                for driver in arguments.drivers if repetition % 2 == 0 else reversed(arguments.drivers):
                    say(f"{driver}, batches of {batch}, {repetition + 1} of {arguments.repeat}")
                    await _drain(server, driver, arguments.runs, batch, loop)


class Psycopg:
    """The part of asyncpg's connection that the store's functions use, on psycopg: with unchanged statements, `$1` and so
    on."""

    def __init__(self, connection: Any, *, binary: bool) -> None:
        self._new_cursor = partial(importlib.import_module("psycopg").AsyncRawCursor, connection)
        json = importlib.import_module("psycopg.types.string")
        # JSON documents as text, as asyncpg returns them: the store decodes payloads itself.
        connection.adapters.register_loader("jsonb", json.TextBinaryLoader if binary else json.TextLoader)
        self._cursors: dict[str, Any] = {}  # one for each statement: in a pipeline two are active at the same time
        self._binary = binary

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        cursor = self._cursors.get(query) or self._cursors.setdefault(query, self._new_cursor())
        await cursor.execute(query, args, prepare=True, binary=self._binary)
        rows: list[Any] = await cursor.fetchall()
        return rows

    async def execute(self, query: str) -> Any:
        await self._new_cursor().execute(query)


async def _drain(server: Server, driver: str, count: int, batch: int, loop: str) -> None:
    await server.monitor.execute("TRUNCATE sexton.jobs, sexton.runs, sexton.executions, sexton.endings, sexton.workers")
    for start in range(0, count, 2_000):
        documents = [submission("note", {"number": n, "pad": "x" * 180}) for n in range(start, min(start + 2_000, count))]
        await jobs.submit(server.monitor, documents)
    await server.monitor.execute("VACUUM ANALYZE sexton.runs")
    await server.monitor.execute("CHECKPOINT")
    worker_id = uuid4()
    await workers.enlist(server.monitor, worker_id, name="study", queues=["default"], tasks=["note"], concurrency=batch)
    async with AsyncExitStack() as exits:
        connection, pid, pipeline = await _connect(server.url, driver, exits)
        claim = _claimer(connection, worker_id, batch)
        await runs.finish(connection, [])  # prepares the statement, as the first call does for the claim
        first = await claim()
        meter = Meter(server, pid)
        before, started = await meter.read(), time.perf_counter()
        done = await (_overlapped if pipeline else _in_turn)(connection, claim, first)
        wall_s = time.perf_counter() - started
        used = since(before, await meter.read())
    if done != count:
        raise RuntimeError(f"{driver} ended {done:,} of {count:,} runs")
    tell(
        driver=driver,
        loop=loop,
        batch=batch,
        runs=count,
        runs_per_s=count / wall_s,
        client_us_per_run=used.client_s / count * 1e6,
        server_us_per_run=used.server_s / count * 1e6,
        wal_bytes_per_run=used.wal_bytes / count,
    )


async def _connect(url: str, driver: str, exits: AsyncExitStack) -> tuple[Any, int, bool]:
    if driver == "asyncpg":
        connection = await asyncpg.connect(url, server_settings=_SERVER_SETTINGS)
        exits.push_async_callback(connection.close)
        return connection, connection.get_server_pid(), False
    try:
        psycopg = importlib.import_module("psycopg")
    except ImportError as error:
        raise SystemExit("psycopg is missing: pip install --target FOLDER 'psycopg[binary]', then PYTHONPATH=FOLDER") from error
    options = " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items())
    raw = await psycopg.AsyncConnection.connect(url, autocommit=True, options=options)
    exits.push_async_callback(raw.close)
    pid = raw.info.backend_pid
    if driver == "psycopg-pipeline":
        await exits.enter_async_context(raw.pipeline())
    return Psycopg(raw, binary=driver != "psycopg-text"), pid, driver == "psycopg-pipeline"


def _claimer(connection: Any, worker_id: UUID, batch: int) -> Callable[[], Awaitable[list[Claimed]]]:
    async def claim() -> list[Claimed]:
        return await runs.claim(
            connection, worker_id=worker_id, queues=["default"], tasks=["note"], limit=batch, grace_s=15.0, now=None
        )

    return claim


def _reports(claimed: Sequence[Claimed], rng: Random) -> list[run.Report]:
    return [run.report(one.lease, Succeeded(), rng, started_s=0.001, took_s=0.001) for one in claimed]


async def _in_turn(connection: Any, claim: Callable[[], Awaitable[list[Claimed]]], claimed: list[Claimed]) -> int:
    done, rng = 0, Random(1)
    while claimed:
        done += len(await runs.finish(connection, _reports(claimed, rng)))
        claimed = await claim()
    return done


async def _overlapped(connection: Any, claim: Callable[[], Awaitable[list[Claimed]]], claimed: list[Claimed]) -> int:
    """The report of one batch and the claim of the next in one pipeline on one connection."""
    done, rng = 0, Random(1)
    while claimed:
        ended, claimed = await asyncio.gather(runs.finish(connection, _reports(claimed, rng)), claim())
        done += len(ended)
    return done


if __name__ == "__main__":
    main()
