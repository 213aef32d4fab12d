"""`sexton worker` and `sexton scheduler`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from sexton.scheduler.process import Scheduler
from sexton.store.database import Postgres
from sexton.telemetry import logs
from sexton.worker.process import WorkerProcess

from .composition import ground, load_app, read_settings, serve

Adopt = Annotated[bool, typer.Option("--adopt", help="Take over a database that was copied or restored from elsewhere.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")]


def _known_level(level: str) -> str:
    if level.upper() not in logs.LEVELS:
        raise typer.BadParameter(f"{level!r} is unknown; use {', '.join(logs.LEVELS[:-1])} or {logs.LEVELS[-1]}")
    return level.upper()


LogLevel = Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.", callback=_known_level)]


def worker(
    app: Annotated[str, typer.Argument(help="Where the app is: module:attribute.")],
    adopt: Adopt = False,
    log_json: LogJson = False,
    log_level: LogLevel = "INFO",
) -> None:
    """Run a worker for the tasks of an app until SIGTERM."""
    logs.configure(level=log_level, json=log_json)
    settings, registry = read_settings(), load_app(app).registry

    async def run(stop: asyncio.Event) -> None:
        async with ground(settings, adopt=adopt) as on:
            transactions = await Postgres.open(on.database.url, size=settings.transaction_pool_size)
            try:
                await WorkerProcess(
                    on.database,
                    transactions,
                    registry,
                    settings,
                    direct_url=on.direct_url,
                    clock=on.clock,
                    emit=on.emit,
                    dice=on.dice,
                ).run(stop)
            finally:
                await transactions.close()

    serve(run)


def scheduler(adopt: Adopt = False, log_json: LogJson = False, log_level: LogLevel = "INFO") -> None:
    """Run a scheduler node until SIGTERM."""
    logs.configure(level=log_level, json=log_json)
    settings = read_settings()

    async def run(stop: asyncio.Event) -> None:
        async with ground(settings, adopt=adopt) as on:
            await Scheduler(on.database, settings, direct_url=on.direct_url, clock=on.clock, emit=on.emit, dice=on.dice).run(
                stop
            )

    serve(run)
