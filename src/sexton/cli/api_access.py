"""How data commands reach Sexton: through the API over HTTP, or through the same API inside this process.

So each operation exists once, in `sexton.api`, for both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from sexton.client.remote.async_client import AsyncClient

T = TypeVar("T")

INSIDE = "http://in-process.invalid"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="SEXTON_API_URL",
        metavar="URL",
        help="URL of the API, such as http://127.0.0.1:8474. Default: SEXTON_DATABASE_URL or the embedded one, directly.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, as the API returns it.")]


def with_client(url: str | None, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Runs `work` with a client, and closes everything at the end."""

    async def run() -> T:
        async with open_client(url) as client:
            return await work(client)

    return asyncio.run(run())


@asynccontextmanager
async def open_client(url: str | None) -> AsyncIterator[AsyncClient]:
    from sexton.client.remote.async_client import AsyncClient

    if url is None:
        from .composition import read_settings

        settings = read_settings()
        url = None if settings.api_url is None else settings.api_url.get_secret_value()
    if url is not None:
        async with AsyncClient(url) as client:
            yield client
        return
    async with _inside() as client:
        yield client


@asynccontextmanager
async def _inside() -> AsyncIterator[AsyncClient]:
    import httpx

    from sexton.api.app import create
    from sexton.client.location import data_dir, open_database
    from sexton.client.remote.async_client import AsyncClient
    from sexton.clock import SystemClock
    from sexton.errors import DatabaseUnavailable
    from sexton.ids import entropy
    from sexton.telemetry import logs
    from sexton.telemetry.events import Events

    from .composition import read_settings

    settings = read_settings()
    if settings.database_url is None and not data_dir(settings).exists():  # a read must not create a database
        raise DatabaseUnavailable("there is no database yet; set SEXTON_DATABASE_URL, or start `sexton dev`")
    database = await open_database(None, settings)
    try:
        logs.configure(level="ERROR")
        app = create(database, settings, clock=SystemClock(), emit=Events(logs.write), rng=entropy())
        # No request can be lost inside a process, so no retries and no key are needed.
        try:
            async with AsyncClient(INSIDE, retries=0, transport=httpx.ASGITransport(app)) as client:  # type: ignore[arg-type]
                yield client
        finally:  # not by the app's lifespan, which wraps exceptions into groups
            await app.state["api"].close()
    finally:
        await database.close()
