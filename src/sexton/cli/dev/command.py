"""`sexton dev`: API, scheduler and worker in one process and one event loop, on the embedded PostgreSQL by default. It does
not wait for problems that the user has to fix: it prints one line and exits at once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from pydantic import SecretStr

from sexton.cli.commands.services import Adopt, Host, LogLevel, Port, api_on, run_worker, scheduler_on
from sexton.cli.composition import (
    BrokenApp,
    Ground,
    ground,
    listening_on,
    load_registry,
    open_database,
    read_settings,
    serve,
    stop_limit_s,
    together,
)
from sexton.cli.exit_codes import report
from sexton.client.location import embedded
from sexton.handlers.parent_death import die_with_parent
from sexton.registry import Registry
from sexton.service import Wake, repeat, unless_stopped
from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.database import SHARED
from sexton.store.embedded.server import EmbeddedPostgres
from sexton.telemetry import logs
from sexton.telemetry.events import Event, WorkerJoined

from . import reload
from .embedded_restart import EmbeddedRestart
from .greeting import Greeting, tell_ended

DEMO = "sexton.demo:app"
# The user waits after Ctrl-C, so handlers get only this long to finish, and a quarter of the grace period after being asked.
DRAIN_S = 1.5
GRACE_S = 4.0

Path = Annotated[str | None, typer.Argument(help="The app, as module:attribute. Default: the demo app.", metavar="[APP]")]
NoReload = Annotated[bool, typer.Option("--no-reload", help="Do not restart when a file of the app changes.")]
Lifeline = Annotated[int | None, typer.Option("--lifeline", hidden=True)]
Again = Annotated[bool, typer.Option("--again", hidden=True)]


def dev(
    app: Path = None,
    host: Host = None,
    port: Port = None,
    no_reload: NoReload = False,
    adopt: Adopt = False,
    log_level: LogLevel = "WARNING",
    lifeline: Lifeline = None,
    again: Again = False,
) -> None:
    """Run everything in one process, for development: API, scheduler and worker, on the embedded PostgreSQL or
    SEXTON_DATABASE_URL. Your own app is reloaded when its files change.

    Example: sexton dev shop.tasks:app
    """
    if lifeline is not None:
        die_with_parent(lifeline)
    logs.configure(level=log_level)
    settings = listening_on(read_settings(), host, port)
    if app is not None and not no_reload:
        options = ["--log-level", log_level, *(["--adopt"] if adopt else [])]
        options += [*(["--host", host] if host is not None else []), *(["--port", str(port)] if port is not None else [])]
        raise typer.Exit(reload.supervise(app, options, settings))
    try:
        registry = load_registry(app or DEMO)
    except BrokenApp as error:
        if lifeline is None:
            raise
        report(error, as_json=False)
        raise typer.Exit(reload.BROKEN) from None
    settings = _in_haste(settings)
    serve(lambda stop: run(stop, settings, registry, adopt=adopt, again=again), stop_limit_s=stop_limit_s(settings))


async def run(stop: asyncio.Event, settings: Settings, registry: Registry, *, adopt: bool, again: bool = False) -> None:
    greeting = Greeting(registry)
    server = None
    if settings.database_url is None:
        server = await embedded(settings)
        settings = settings.model_copy(update={"database_url": SecretStr(server.url())})
    try:
        applied = await unless_stopped(stop, _migrate(settings))
        if applied and server is None:
            print(f"migrated the database: {', '.join(migrations.summary(applied))}")
        joined = asyncio.Event()

        def hear(event: Event) -> None:
            if isinstance(event, WorkerJoined):
                joined.set()

        async with ground(settings, adopt=adopt, stop=stop, hear=[hear, tell_ended], timeouts=SHARED) as on:
            await together(
                stop,
                _run_all(stop, on, registry, joined, greeting, again=again),
                *([_revive(stop, on, server)] if server else []),
            )
    finally:
        if server is not None:
            await asyncio.to_thread(server.leave)


async def _run_all(
    stop: asyncio.Event, on: Ground, registry: Registry, joined: asyncio.Event, greeting: Greeting, *, again: bool
) -> None:
    """Starts the API first: if its port is in use, nothing else must have started."""
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def others() -> None:
        address = await unless_stopped(stop, listening)
        await together(stop, scheduler_on(on).run(stop), run_worker(on, registry, stop), greet(address))

    async def greet(address: str) -> None:
        await unless_stopped(stop, joined.wait())
        (greeting.again if again else greeting.first)(address, on.database.url)
        await stop.wait()

    await together(stop, api_on(on).run(stop, ready=listening.set_result), others())


async def _revive(stop: asyncio.Event, on: Ground, server: EmbeddedPostgres) -> None:
    restart = EmbeddedRestart(server, emit=on.emit)
    await unless_stopped(stop, repeat(restart, Wake(), clock=on.clock, emit=on.emit, rng=on.rng))


async def _migrate(settings: Settings) -> list[str]:
    database = await open_database(settings, size=1)
    try:
        return await migrations.migrate(database)
    finally:
        await database.close()


def _in_haste(settings: Settings) -> Settings:
    haste = {"worker_drain_s": min(settings.worker_drain_s, DRAIN_S), "worker_grace_s": min(settings.worker_grace_s, GRACE_S)}
    return settings.model_copy(update=haste)
