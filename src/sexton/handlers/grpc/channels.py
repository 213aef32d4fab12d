"""Connections to gRPC servers: one channel per checked address, open while it is used, closed when it is idle.

A channel connects to addresses, never to a name, so that a second DNS lookup cannot lead to another address.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from sexton.clock import Clock
from sexton.errors import TargetFailed

IDLE_S = 60.0
CHANNEL_LIMIT = 256
CONNECT_S = 5.0
MESSAGE_BYTES_LIMIT = 1024 * 1024  # of a response; at most 64 KiB of it is stored


@dataclass(frozen=True, slots=True)
class Where:
    host: str
    port: int
    tls: bool
    addresses: tuple[str, ...]  # of one family

    @classmethod
    def of(cls, host: str, port: int, tls: bool, addresses: Sequence[str]) -> Where:
        if not addresses:
            raise TargetFailed(f"{host}:{port}: the host has no address")
        is_v6 = ":" in addresses[0]
        return cls(host, port, tls, tuple(sorted(address for address in addresses if (":" in address) is is_v6)))

    @property
    def target(self) -> str:
        if ":" in self.addresses[0]:
            return "ipv6:" + ",".join(f"[{address}]:{self.port}" for address in self.addresses)
        return "ipv4:" + ",".join(f"{address}:{self.port}" for address in self.addresses)

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Open:
    __slots__ = ("channel", "idle_since", "users")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.users = 0
        self.idle_since = 0.0


class Channels:
    def __init__(self, roots: Path | None, *, clock: Clock) -> None:
        self._roots = roots
        self._clock = clock
        self._open: dict[Where, _Open] = {}
        self._credentials: grpc.ChannelCredentials | None = None

    @asynccontextmanager
    async def channel(self, where: Where) -> AsyncIterator[grpc.aio.Channel]:
        await self._close_idle()
        found = self._open.get(where)
        if found is None:
            found = self._open[where] = _Open(self._connect(where))
        found.users += 1
        try:
            yield found.channel
        finally:
            found.users -= 1
            found.idle_since = self._clock.monotonic()

    async def close(self) -> None:
        channels, self._open = [found.channel for found in self._open.values()], {}
        for channel in channels:
            await channel.close()

    def __len__(self) -> int:
        return len(self._open)

    async def _close_idle(self) -> None:
        now, is_full = self._clock.monotonic(), len(self._open) >= CHANNEL_LIMIT
        idle = [
            (where, found)
            for where, found in self._open.items()
            if not found.users and (is_full or now - found.idle_since >= IDLE_S)
        ]
        for where, _ in idle:
            del self._open[where]
        for _, found in idle:
            await found.channel.close()

    def _connect(self, where: Where) -> grpc.aio.Channel:
        options: list[tuple[str, str | int]] = [
            ("grpc.default_authority", where.authority),  # also the name that the certificate must match
            ("grpc.primary_user_agent", "Sexton"),
            ("grpc.enable_http_proxy", 0),  # a proxy would resolve names, or connect to an address that was not checked
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.enable_retries", 0),  # the job's policy decides about retries
            ("grpc.max_receive_message_length", MESSAGE_BYTES_LIMIT),
            ("grpc.client_idle_timeout_ms", int(IDLE_S * 1000)),
            ("grpc.initial_reconnect_backoff_ms", 500),
            ("grpc.min_reconnect_backoff_ms", int(CONNECT_S * 1000)),  # also the connect timeout
            ("grpc.max_reconnect_backoff_ms", int(CONNECT_S * 1000)),
        ]
        if not where.tls:
            return grpc.aio.insecure_channel(where.target, options)
        return grpc.aio.secure_channel(where.target, self._trusted(), options)

    def _trusted(self) -> grpc.ChannelCredentials:
        if self._credentials is None:
            system = cast(str | None, ssl.get_default_verify_paths().cafile)
            file = self._roots or (None if system is None else Path(system))
            try:
                self._credentials = grpc.ssl_channel_credentials(None if file is None else file.read_bytes())
            except OSError as error:
                raise TargetFailed(f"the certificates (SEXTON_GRPC_ROOTS) cannot be read: {error.strerror}: {file}") from None
        return self._credentials
