"""Hints that something happened, by LISTEN on a direct connection. A hint may be lost, late or doubled, so every receiver must
also poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import asyncpg

from sexton.errors import DatabaseUnavailable
from sexton.store.database import WRITABLE, connect
from sexton.store.postgres.driver_errors import translated_errors
from sexton.telemetry.events import Emit, ServiceFailed

READY, DUE, CANCEL, PLAN = "sexton_ready", "sexton_due", "sexton_cancel", "sexton_plan"

ASK_S = 15.0  # between two checks of an idle connection
ANSWER_S = 5.0

Hear = Callable[[str, str], None]  # channel, payload


class Listener:
    """Keeps one listening connection open and reconnects after an outage. After every (re)connection, each channel is called
    once with an empty payload, because hints may have been missed."""

    def __init__(
        self,
        url: str,
        channels: Collection[str],
        hear: Hear,
        *,
        emit: Emit = lambda _event: None,
        retry_s: float = 1.0,
        ask_s: float = ASK_S,
    ) -> None:
        self._url = url
        self._channels = tuple(channels)
        self._hear, self._emit = hear, emit
        self._retry_s, self._ask_s = retry_s, ask_s
        self._has_reported = False
        self.connected = False

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._listen()
            except DatabaseUnavailable:
                pass
            except Exception as error:  # a server in maintenance may raise any error; keep trying
                if not self._has_reported:  # only once until the next connection
                    self._emit(ServiceFailed("listener", error))
                self._has_reported = True
            finally:
                self.connected = False
            await asyncio.sleep(self._retry_s)

    async def _listen(self) -> None:
        connection = await connect(
            self._url,
            server_settings={
                "application_name": "sexton listener",
                "statement_timeout": f"{ANSWER_S:g}s",
                "tcp_keepalives_idle": "5",
            },
            target_session_attrs=WRITABLE,
        )
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            with translated_errors():
                for channel in self._channels:
                    await connection.add_listener(channel, self._notified)
            self.connected, self._has_reported = True, False
            for channel in self._channels:
                self._hear(channel, "")
            await self._until(gone, connection)
        finally:
            connection.terminate()

    async def _until(self, gone: asyncio.Event, connection: asyncpg.Connection) -> None:
        """A dead connection may give no sign, and a listener sends nothing by itself: so it sends a query regularly."""
        while not gone.is_set():
            try:
                async with asyncio.timeout(self._ask_s):
                    await gone.wait()
            except TimeoutError:
                with translated_errors():
                    await connection.execute("SELECT 1", timeout=ANSWER_S)

    def _notified(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        self._hear(channel, str(payload))
