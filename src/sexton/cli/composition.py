"""What every service needs before it may start: the database, proof that it is ours and current, and a way for wake-ups."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvloop

from sexton.client.app import App
from sexton.clock import Clock, SystemClock
from sexton.errors import DataRefused, SextonError
from sexton.ids import Rng, entropy
from sexton.service import insist
from sexton.settings import Settings
from sexton.store import cluster, migrate
from sexton.store.database import Postgres, is_direct
from sexton.telemetry import logs
from sexton.telemetry.events import Emit, Events


@dataclass(frozen=True)
class Ground:
    """What a service stands on."""

    settings: Settings
    database: Postgres
    direct_url: str | None
    clock: Clock
    emit: Emit
    dice: Rng


def database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise SextonError("no database: set SEXTON_DATABASE_URL, for example postgresql://user@host/dbname")
    return settings.database_url.get_secret_value()


def read_settings() -> Settings:
    try:
        return Settings()
    except tomllib.TOMLDecodeError as error:
        raise SextonError(f"sexton.toml: {error}") from error


async def open_database(settings: Settings, *, size: int) -> Postgres:
    with _address("SEXTON_DATABASE_URL"):
        return await Postgres.open(database_url(settings), size=size)


@contextmanager
def _address(name: str) -> Iterator[None]:
    """The driver's own words about an address may hold a part of its password."""
    try:
        yield
    except (ValueError, DataRefused):
        raise SextonError(
            f"{name} is not an address of PostgreSQL, such as postgresql://user:password@host:5432/dbname; "
            "special characters in the password are written as %2F, %40 and so on"
        ) from None


@asynccontextmanager
async def ground(settings: Settings, *, adopt: bool) -> AsyncIterator[Ground]:
    clock, emit, dice = SystemClock(), Events(logs.write), entropy()

    database = await insist(
        "database", lambda: open_database(settings, size=settings.pool_size), clock=clock, emit=emit, dice=dice
    )
    try:
        await migrate.require_current(database)
        if adopt:
            async with database.transaction() as connection:
                await cluster.adopt(connection)
        await cluster.require_home(database)
        yield Ground(settings, database, await _direct_url(settings, database), clock, emit, dice)
    finally:
        await database.close()


async def _direct_url(settings: Settings, database: Postgres) -> str | None:
    """A way on which LISTEN and session locks may be used, proven, or none."""
    if database.direct:
        return database.url
    if settings.direct_url is not None:
        url = settings.direct_url.get_secret_value()
        with _address("SEXTON_DIRECT_URL"):
            direct = await is_direct(url)
        if not direct:
            raise SextonError(
                "SEXTON_DIRECT_URL leads through a pooler as well; give the address of the PostgreSQL server itself"
            )
        return url
    return None


def load_app(path: str) -> App:
    """`package.module:attribute`, with the current directory importable, as in `python -m`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, _, attribute = path.partition(":")
    if not module_name or module_name.startswith("."):
        raise SextonError(f"{path!r} names no module; give the app as module:attribute")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise SextonError(f"{path}: {module_name} needs {error.name!r}, which is not installed here") from error
        raise SextonError(f"{path}: there is no module {error.name!r} here; run from the folder that holds it") from error
    if not hasattr(module, attribute or "app"):
        raise SextonError(f"{path}: module {module_name!r} has no {attribute or 'app'!r}")
    found = getattr(module, attribute or "app")
    if not isinstance(found, App):
        raise SextonError(f"{path}: is a {type(found).__name__}, not a sexton.App")
    return found


def serve(run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Runs until a signal asks to stop; a second one ends the process at once, and loses nothing."""

    async def main() -> None:
        stop = asyncio.Event()

        def asked() -> None:
            if stop.is_set():
                os._exit(1)
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked)
        await run(stop)

    # What is loaded by now stays. A busy worker makes hundreds of thousands of short-lived objects a second; looking through
    # them as often as by default costs it microseconds of every one.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    uvloop.run(main())
