"""One API process: the app behind uvicorn, on its own socket, with its own start and stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from sexton.clock import Clock
from sexton.errors import SextonError
from sexton.ids import Rng
from sexton.settings import Settings
from sexton.store.database import Postgres
from sexton.telemetry.events import ApiExposed, ApiListening, Emit

from . import app
from .edge.connections import KEEP_ALIVE_S, Connection, ConnectionLimit, places
from .state import ApiState

DRAIN_S = 5  # running requests may end; streams end at once
_BACKLOG = 2048
_LOOK_TICKS = 10  # ticks of uvicorn, each a tenth of a second


class ApiProcess:
    def __init__(self, database: Postgres, settings: Settings, *, clock: Clock, emit: Emit, rng: Rng) -> None:
        self._settings, self._emit = settings, emit
        self._app = app.create(database, settings, clock=clock, emit=emit, rng=rng)

    async def run(self, stop: asyncio.Event, *, ready: Callable[[str], None] = lambda _address: None) -> None:
        """Runs until `stop` is set. `ready` gets the address when the socket listens."""
        limit = ConnectionLimit(places(self._settings.api_connection_limit), self._settings.api_receive_s)
        listening = _listen(self._settings.api_host, self._settings.api_port)
        try:
            address = _address(listening)
            server = _Server(self._config(limit), limit, lambda: self._ready(address, ready))
            serving = asyncio.create_task(server.serve(sockets=[listening]), name="api")
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                state: ApiState = self._app.state["api"]
                state.answer_all()
                server.should_exit = True
                await serving
        finally:
            listening.close()

    def _config(self, limit: ConnectionLimit) -> uvicorn.Config:
        protocol: Any = partial(Connection, limit)
        return uvicorn.Config(
            self._app,
            http=protocol,
            loop="none",
            lifespan="on",
            ws="none",
            access_log=False,
            log_config=None,
            log_level="error",  # errors of callers go to the caller, and must not fill our log
            server_header=False,
            date_header=True,
            proxy_headers=False,  # nothing here depends on the caller's address
            backlog=_BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )

    def _ready(self, address: str, tell: Callable[[str], None]) -> None:
        self._emit(ApiListening(address))
        if not is_loopback(self._settings.api_host):
            self._emit(ApiExposed(address))
        tell(address)


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, with a report of its start, and with a limit for idle callers."""

    def __init__(self, config: uvicorn.Config, limit: ConnectionLimit, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._limit, self._tell = limit, started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._tell()

    async def on_tick(self, counter: int) -> bool:
        if counter % _LOOK_TICKS == 0:
            self._limit.end_slow(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    """We open the socket, so that a port in use is one clear line."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SextonError(
            f"cannot listen on {host!r}: {error.strerror or error}; set SEXTON_API_HOST to an address of this machine"
        ) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise SextonError(
                f"port {port} on {host} is in use by another program; choose another with --port or SEXTON_API_PORT"
            ) from None
        raise SextonError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
