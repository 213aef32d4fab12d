"""Hints that something happened, by LISTEN on a connection proven to be direct. A hint may be lost, late or doubled: whoever
waits for one also looks by itself now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import asyncpg

from sexton.errors import DatabaseUnavailable
from sexton.store.database import WRITABLE, connect, translated_errors
from sexton.telemetry.events import Emit, ServiceFailed

READY, DUE, CANCEL, PLAN = "sexton_ready", "sexton_due", "sexton_cancel", "sexton_plan"

ASK_S = 15.0  # between two questions to a silent server
ANSWER_S = 5.0

Hear = Callable[[str, str], None]  # channel, payload


class Listener:
    """Keeps one listening connection open and comes back by itself after an outage. After every (re)connection each channel is
    heard once with an empty payload, because hints may have been missed."""

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
        self._has_told = False
        self.connected = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._listen()
            except DatabaseUnavailable:
                pass
            except Exception as error:  # a server under repair has many words, and its services come back as well
                if not self._has_told:  # once until the next connection
                    self._emit(ServiceFailed("listener", error))
                self._has_told = True
            finally:
                self.connected = False
            await asyncio.sleep(self._retry_s)

    async def _listen(self) -> None:
        connection = await connect(
            self._url,
            server_settings={"application_name": "sexton listener", "tcp_keepalives_idle": "5"},
            target_session_attrs=WRITABLE,
        )
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            with translated_errors():
                for channel in self._channels:
                    await connection.add_listener(channel, self._heard)
            self.connected, self._has_told = True, False
            for channel in self._channels:
                self._hear(channel, "")
            await self._until(gone, connection)
        finally:
            connection.terminate()

    async def _until(self, gone: asyncio.Event, connection: asyncpg.Connection) -> None:
        """A connection may lead nowhere without anybody telling, and this side never says anything by itself: so it asks."""
        while not gone.is_set():
            try:
                async with asyncio.timeout(self._ask_s):
                    await gone.wait()
            except TimeoutError:
                with translated_errors():
                    await connection.execute("SELECT 1", timeout=ANSWER_S)

    def _heard(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        self._hear(channel, str(payload))
