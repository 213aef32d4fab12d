"""What every service needs before it starts: the database, checks of its identity and schema, and a connection for LISTEN."""

from __future__ import annotations

import asyncio
import difflib
import gc
import importlib
import os
import sys
import tomllib
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sexton.client.app import App
from sexton.client.location import address
from sexton.clock import Clock, SystemClock
from sexton.errors import InvalidSetting, SextonError
from sexton.ids import Rng, entropy
from sexton.registry import Registry
from sexton.service import AskedToStop, insist, unless_stopped
from sexton.settings import Settings
from sexton.store import migrations
from sexton.store.database import PATIENT, LockTimeouts, Postgres, is_direct
from sexton.store.fleet import cluster
from sexton.store.postgres.server_version import require_supported
from sexton.telemetry import logs
from sexton.telemetry.events import Emit, Events

from . import service_loop

STOP_S = 20.0  # to stop: last reports, connections, the embedded server; usually well below a second


class BrokenApp(SextonError):
    """The app's code cannot be imported."""


@dataclass(frozen=True)
class Ground:
    """What every service is built on."""

    settings: Settings
    database: Postgres
    direct_url: str | None
    clock: Clock
    emit: Emit
    rng: Rng


def database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise InvalidSetting(
            "there is no database; set SEXTON_DATABASE_URL, such as postgresql://user@host/dbname, or use `sexton dev`"
        )
    return settings.database_url.get_secret_value()


def read_settings() -> Settings:
    try:
        settings = Settings()
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"sexton.toml: {error}") from error
    for variable in unknown_variables(os.environ):
        close = difflib.get_close_matches(variable, _VARIABLES, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        print(f"sexton: {variable} is not a setting and has no effect{hint}", file=sys.stderr)
    return settings


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Variables with Sexton's prefix that are not settings. Those of tests, tools and secrets are left out."""
    ours = (
        name
        for name in environment
        if name.startswith("SEXTON_") and not name.startswith(("SEXTON_TEST_", "SEXTON_BENCH_", "SEXTON_SECRET_"))
    )
    return sorted(name for name in ours if name not in _VARIABLES)


_VARIABLES = [f"SEXTON_{name.upper()}" for name in Settings.model_fields]


def _where_else(module_name: str) -> str:
    if module_name.endswith(".py"):
        return f"write {module_name.removesuffix('.py').replace('/', '.')}:app"
    return "run the command in the folder that contains it"


def listening_on(settings: Settings, host: str | None, port: int | None) -> Settings:
    """The settings, overridden by the command line."""
    overrides = {"api_host": host, "api_port": port}
    return settings.model_copy(update={name: value for name, value in overrides.items() if value is not None})


async def open_database(settings: Settings, *, size: int, timeouts: LockTimeouts = PATIENT) -> Postgres:
    """A supported server, with any schema."""
    with address("SEXTON_DATABASE_URL"):
        database = await Postgres.open(database_url(settings), size=size, timeouts=timeouts)
    try:
        await require_supported(database)
    except BaseException:
        await database.close()
        raise
    return database


class ground:  # noqa: N801  (used as a function, in `async with`)
    """Waits for a database that is not available, because a service may start before it; `AskedToStop` if `stop` comes first.
    Other problems (no schema, a clone, a server that is too old) raise an error at once.

    No async generator: each belongs to the event loop, where a handler of a worker can find and close it."""

    def __init__(
        self,
        settings: Settings,
        *,
        adopt: bool,
        stop: asyncio.Event | None = None,
        hear: Sequence[Emit] = (),
        timeouts: LockTimeouts = PATIENT,
    ) -> None:
        self._settings, self._adopt, self._stop, self._hear, self._timeouts = settings, adopt, stop, hear, timeouts
        self._database: Postgres | None = None

    async def __aenter__(self) -> Ground:
        settings, clock, emit, rng = self._settings, SystemClock(), Events(logs.write, *self._hear), entropy()
        opening = insist(
            "database", lambda: _open_ours(settings, self._timeouts, adopt=self._adopt), clock=clock, emit=emit, rng=rng
        )
        database, direct_url = await (opening if self._stop is None else unless_stopped(self._stop, opening))
        self._database = database
        return Ground(settings, database, direct_url, clock, emit, rng)

    async def __aexit__(self, *_raised: object) -> None:
        if self._database is not None:
            await self._database.close()


async def _open_ours(settings: Settings, timeouts: LockTimeouts, *, adopt: bool) -> tuple[Postgres, str | None]:
    database = await open_database(settings, size=settings.pool_size, timeouts=timeouts)
    try:
        await migrations.require_current(database)
        if adopt:
            async with database.transaction() as connection:
                await cluster.adopt(connection)
        await cluster.require_home(database)
        return database, await _direct_url(settings, database)
    except BaseException:
        await database.close()
        raise


async def _direct_url(settings: Settings, database: Postgres) -> str | None:
    """A URL that was tested to be direct, so that LISTEN and session locks work; `None` if there is none."""
    if database.direct:
        return database.url
    if settings.direct_url is not None:
        url = settings.direct_url.get_secret_value()
        with address("SEXTON_DIRECT_URL"):
            direct = await is_direct(url)
        if not direct:
            raise SextonError(
                "SEXTON_DIRECT_URL also leads through a pooler; set it to the URL of the PostgreSQL server itself"
            )
        return url
    return None


def load_app(path: str) -> App:
    """`package.module:attribute`, with the current directory importable, as in `python -m`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, _, attribute = path.partition(":")
    if not module_name or module_name.startswith("."):
        raise SextonError(f"{path!r} has no module; give the app as module:attribute")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise SextonError(f"{path}: {module_name} needs {error.name!r}, which is not installed here") from error
        raise SextonError(f"{path}: module {error.name!r} was not found; {_where_else(module_name)}") from error
    if not hasattr(module, attribute or "app"):
        raise SextonError(f"{path}: module {module_name!r} has no {attribute or 'app'!r}")
    found = getattr(module, attribute or "app")
    if not isinstance(found, App):
        raise SextonError(f"{path}: is a {type(found).__name__}, not a sexton.App")
    return found


def load_registry(path: str) -> Registry:
    """The tasks of the app. An exception in the app's code is reported in one line, like any other error."""
    try:
        registry = load_app(path).registry
        registry.owner = path if path.partition(":")[2] else f"{path.rstrip(':')}:app"
        return registry
    except SextonError:
        raise
    except Exception as error:
        raise BrokenApp(f"{path} cannot be loaded: {type(error).__name__}: {error}{_place(error)}") from error


def _place(error: Exception) -> str:
    """Where it happened; a syntax error already contains its place."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


async def together(stop: asyncio.Event, *runs: Awaitable[None]) -> None:
    """Runs until all have ended. When the first one ends, the others are stopped, and its error is raised."""
    tasks = [asyncio.ensure_future(run) for run in runs]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, AskedToStop))  # the others raise it because they were stopped


def stop_limit_s(settings: Settings) -> float:
    """How long a process with a worker may take to stop."""
    return settings.worker_drain_s + settings.worker_grace_s / 4 + STOP_S


def serve(run: Callable[[asyncio.Event], Awaitable[None]], *, stop_limit_s: float = STOP_S) -> None:
    """Runs until a signal asks to stop. A second signal ends the process at once; no job is lost."""

    async def main(stop: asyncio.Event) -> None:
        with suppress(AskedToStop):
            await run(stop)

    # Loaded modules stay in memory. A busy worker makes hundreds of thousands of short-lived objects per second; the default
    # frequency of the garbage collector would cost microseconds for each.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    service_loop.run(main, stop_limit_s=stop_limit_s)
