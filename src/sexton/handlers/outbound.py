"""Outbound connections of a worker: resolves hosts and connects only to addresses that the rules allow.

The checked address is the one that is connected to: the worker resolves a name once per connection, so a second DNS lookup
cannot lead to another address.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from sexton.domain.outbound import Rules
from sexton.domain.outbound.addresses import literal
from sexton.errors import InvalidSetting, OutboundRefused

LOOKUP_THREADS = 16  # a name server that does not answer blocks one for half a minute
REMEMBERED_S = 10  # cached DNS results
KEPT_ALIVE_S = (
    4.0  # of an idle connection: less than the 5 s after which many servers close it, possibly while a request is sent
)

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]

_host: ContextVar[str] = ContextVar("sexton_outbound_host")


class Outbound:
    """Applies the rules. `lookup` resolves a name to addresses."""

    def __init__(self, rules: Rules, lookup: Lookup | None = None) -> None:
        self._rules = rules
        self._against_host = lru_cache(maxsize=1024)(rules.against_host)  # called before every call: 10 µs
        self._against_name = lru_cache(maxsize=1024)(rules.against_name)
        self._threads: ThreadPoolExecutor | None = None
        self._lookup = lookup or self._ask_the_system

    def vet(self, host: str, port: int, *, by_proxy: bool = False) -> None:
        """Checks a host before it is resolved; `OutboundRefused` names the rule and the setting. Its addresses are checked when
        they are known, unless a proxy resolves them."""
        _refuse(self._against_name(host, port) if by_proxy else self._against_host(host, port))

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host that may be called; `OutboundRefused` if none may."""
        self.vet(host, port)
        if literal(host) is not None:
            return [host]
        found = await self._lookup(host, port)
        refusals = {address: self._against(host, address, port) for address in found}
        passed = [address for address, refusal in refusals.items() if refusal is None]
        if not refusals:
            raise OSError(socket.EAI_NONAME, "the host has no address")
        if not passed:
            _refuse(next(iter(refusals.values())))
        return passed

    def connector(self, trusted: ssl.SSLContext | bool = True, *, by_proxy: bool = False) -> aiohttp.TCPConnector:
        """For a session in which every connection is checked, except those to the proxy of the settings. It does not limit the
        number of connections."""
        return aiohttp.TCPConnector(
            resolver=None if by_proxy else _Resolver(self),
            socket_factory=None if by_proxy else self._socket,
            ttl_dns_cache=REMEMBERED_S,
            limit=0,
            keepalive_timeout=KEPT_ALIVE_S,
            ssl=trusted,
        )

    def calling(self, host: str) -> None:
        """Tells for which host the current task is about to connect."""
        _host.set(host)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _socket(self, found: tuple[int, int, int, str, tuple[str | int, ...]]) -> socket.socket:
        """The last check, on every path: exactly this address is connected to."""
        family, kind, protocol, _, (address, port, *_) = found
        _refuse(self._against(_host.get(str(address)), str(address), int(port)))
        return socket.socket(family, kind, protocol)

    def _against(self, host: str, address: str, port: int) -> str | None:
        known = literal(address)
        return f"{address!r} is not an address" if known is None else self._rules.against_address(host, known, port)

    async def _ask_the_system(self, host: str, port: int) -> list[str]:
        """In separate threads: names that no server answers for must not delay others."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LOOKUP_THREADS, "sexton-lookup")
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(found))


def trusted(ca_file: Path | None) -> ssl.SSLContext | bool:
    """The certificates of a file, or the system's."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # also raised by ssl
        raise InvalidSetting(f"SEXTON_HTTP_CA_FILE: {ca_file} cannot be read: {error.strerror or error}") from None


def _look_up(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)]


def _refuse(refusal: str | None) -> None:
    if refusal is not None:
        raise OutboundRefused(f"the call is not allowed: {refusal}; add the target to SEXTON_OUTBOUND_ALLOW to allow it")


class _Resolver(AbstractResolver):
    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self._outbound.addresses(host, port)
        ]

    async def close(self) -> None:
        pass
