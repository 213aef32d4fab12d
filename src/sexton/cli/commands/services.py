"""`sexton api`, `sexton scheduler` and `sexton worker`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sexton.cli import bounded_exit
from sexton.cli.composition import (
    Ground,
    ground,
    listening_on,
    load_registry,
    read_settings,
    serve,
    stop_limit_s,
)
from sexton.client.sync import sync
from sexton.domain import signed_lease
from sexton.domain.signed_lease import SignedLease
from sexton.handlers.context import Call
from sexton.handlers.targets import TargetHandlers
from sexton.registry import Registry
from sexton.scheduler.process import Scheduler
from sexton.service import insist, unless_stopped
from sexton.store.database import SHARED, Postgres
from sexton.store.work import callbacks
from sexton.telemetry import logs
from sexton.worker.early_retry import EarlyRetry
from sexton.worker.heartbeat import LastResort
from sexton.worker.other_workers import OtherWorkers
from sexton.worker.process import WorkerProcess
from sexton.worker.quarantine.child import HANDED_BACK, Confined, Place, begin, confine
from sexton.worker.quarantine.parent import Command

if TYPE_CHECKING:
    from sexton.api.process import ApiProcess

Adopt = Annotated[bool, typer.Option("--adopt", help="Adopt a database that was copied or restored from another server.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on; by default SEXTON_API_HOST or 127.0.0.1.")]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="By default SEXTON_API_PORT or 8474; 0 takes any free port.")
]


def _known_level(level: str) -> str:
    if level.upper() not in logs.LEVELS:
        raise typer.BadParameter(f"{level!r} is unknown; use {', '.join(logs.LEVELS[:-1])} or {logs.LEVELS[-1]}")
    return level.upper()


LogLevel = Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.", callback=_known_level)]


Quarantine = Annotated[str | None, typer.Option("--quarantine", hidden=True)]


def api(
    host: Host = None, port: Port = None, adopt: Adopt = False, log_json: LogJson = False, log_level: LogLevel = "INFO"
) -> None:
    """Run the HTTP API until SIGTERM.

    Example: sexton api --port 8474
    """
    logs.configure(level=log_level, json=log_json)
    settings = listening_on(read_settings(), host, port)

    async def run(stop: asyncio.Event) -> None:
        async with ground(settings, adopt=adopt, stop=stop, timeouts=SHARED) as on:
            await api_on(on).run(stop)

    serve(run)


def scheduler(adopt: Adopt = False, log_json: LogJson = False, log_level: LogLevel = "INFO") -> None:
    """Run a scheduler node until SIGTERM.

    Example: sexton scheduler --log-json
    """
    logs.configure(level=log_level, json=log_json)
    settings = read_settings()

    async def run(stop: asyncio.Event) -> None:
        async with ground(settings, adopt=adopt, stop=stop) as on:
            await scheduler_on(on).run(stop)

    serve(run)


def worker(
    app: Annotated[
        str | None, typer.Argument(help="Where the app is: module:attribute. Without it, only URLs, gRPC and scripts.")
    ] = None,
    adopt: Adopt = False,
    log_json: LogJson = False,
    log_level: LogLevel = "INFO",
    quarantine: Quarantine = None,
) -> None:
    """Run a worker until SIGTERM: for the tasks of an app, and for jobs that call a URL, a gRPC method or an allowed command.

    Example: sexton worker shop.tasks:app
    """
    place = None if quarantine is None else Place.of(quarantine)
    if place is not None:
        begin(place)
    logs.configure(level=log_level, json=log_json)
    settings, registry = read_settings(), Registry() if app is None else load_registry(app)
    confined = None if place is None else confine(place)
    options = ["--log-level", log_level, *(["--log-json"] if log_json else [])]

    async def run(stop: asyncio.Event) -> None:
        async with ground(settings, adopt=adopt, stop=stop, timeouts=SHARED) as on:
            await run_worker(on, registry, stop, options=options, confined=confined)

    serve(run, stop_limit_s=stop_limit_s(settings))


def api_on(on: Ground) -> ApiProcess:
    from sexton.api.process import ApiProcess  # a web framework, which the other services need not load

    return ApiProcess(on.database, on.settings, clock=on.clock, emit=on.emit, rng=on.rng)


def scheduler_on(on: Ground) -> Scheduler:
    return Scheduler(on.database, on.settings, direct_url=on.direct_url, clock=on.clock, emit=on.emit, rng=on.rng)


async def run_worker(
    on: Ground,
    registry: Registry,
    stop: asyncio.Event,
    *,
    options: Sequence[str] = (),
    confined: Confined | None = None,
) -> None:
    """`options` of the command line are also those of the child that executes suspects."""
    token = await _callback_token(on, stop)
    transactions = await Postgres.open(on.database.url, size=on.settings.transaction_pool_size)
    early_retry = EarlyRetry(on.database, clock=on.clock)
    targets = TargetHandlers(
        on.settings,
        clock=on.clock,
        rng=on.rng,
        callback_token=token,
        make_due=early_retry,
        elsewhere=OtherWorkers(on.database, clock=on.clock),
    )
    try:
        await WorkerProcess(
            on.database,
            transactions,
            registry,
            on.settings,
            direct_url=on.direct_url,
            clock=on.clock,
            emit=on.emit,
            rng=on.rng,
            sync=None if confined else partial(sync, on.database, registry, registry.owner, now=on.clock.database_now()),
            targets=targets.handlers,
            early_retry=early_retry,
            quarantine=_quarantine_command(on, registry, options) if confined is None else None,
            confined=confined,
            leaves=lambda: bounded_exit.within(stop_limit_s(on.settings)),
            last_resort=LastResort(
                partial(bounded_exit.at_once, code=HANDED_BACK if confined else 1),
                stop_limit_s(on.settings),
                confined is not None,
            ),
        ).run(stop)
    finally:
        await targets.close()
        await transactions.close()


def _quarantine_command(on: Ground, registry: Registry, options: Sequence[str]) -> Command:
    """The same app, with the same settings and the same database, also if this process chose it (`sexton dev`)."""
    app = [registry.owner] if ":" in registry.owner else []  # as `load_registry` found it
    words = [sys.executable, "-m", "sexton", "worker", *app, *options]
    return Command(words, environment={**os.environ, "SEXTON_DATABASE_URL": on.database.url})


async def _callback_token(on: Ground, stop: asyncio.Event) -> Callable[[Call], str] | None:
    """Signs the callbacks of targets that answer 202. Not needed if targets cannot reach the API."""
    if on.settings.public_url is None:
        return None

    async def read() -> bytes:
        async with on.database.connection() as connection:
            return await callbacks.key(connection)

    key = await unless_stopped(stop, insist("worker", read, clock=on.clock, emit=on.emit, rng=on.rng))
    return lambda call: signed_lease.written(key, SignedLease(call.run_id, call.job_id, call.token))
