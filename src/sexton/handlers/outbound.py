"""The way out of a worker: looks up hosts, and connects only to addresses that the rules let through.

The address that was judged is the one connected to: a name is looked up once per connection, by us, and what a second lookup
would say does not matter.
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

LOOKUP_THREADS = 16  # a name server that does not answer holds one for half a minute
REMEMBERED_S = 10  # what was looked up
KEPT_ALIVE_S = 4.0  # an idle connection: less than the 5 s after which many servers close theirs while we send

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]

_host: ContextVar[str] = ContextVar("sexton_outbound_host")


class Outbound:
    """The rules at work. `lookup` is the lowest place where a name becomes addresses."""

    def __init__(self, rules: Rules, lookup: Lookup | None = None) -> None:
        self._rules = rules
        self._against_host = lru_cache(maxsize=1024)(rules.against_host)  # asked before every call: 10 µs
        self._against_name = lru_cache(maxsize=1024)(rules.against_name)
        self._threads: ThreadPoolExecutor | None = None
        self._lookup = lookup or self._ask_the_system

    def vet(self, host: str, port: int, *, by_proxy: bool = False) -> None:
        """Judges a host as it is written; `OutboundRefused` names the rule and the setting. Its addresses are judged when they
        are known, unless a proxy looks them up."""
        _refuse(self._against_name(host, port) if by_proxy else self._against_host(host, port))

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where a host is, of that only what may be called; `OutboundRefused` if nothing is."""
        self.vet(host, port)
        if literal(host) is not None:
            return [host]
        found = await self._lookup(host, port)
        refusals = {address: self._against(host, address, port) for address in found}
        passed = [address for address, refusal in refusals.items() if refusal is None]
        if not refusals:
            raise OSError(socket.EAI_NONAME, "it has no address")
        if not passed:
            _refuse(next(iter(refusals.values())))
        return passed

    def connector(self, trusted: ssl.SSLContext | bool = True, *, by_proxy: bool = False) -> aiohttp.TCPConnector:
        """For a session whose every connection is judged, but for those to a proxy, which the settings name. How many there may
        be is not its business."""
        return aiohttp.TCPConnector(
            resolver=None if by_proxy else _Resolver(self),
            socket_factory=None if by_proxy else self._socket,
            ttl_dns_cache=REMEMBERED_S,
            limit=0,
            keepalive_timeout=KEPT_ALIVE_S,
            ssl=trusted,
        )

    def calling(self, host: str) -> None:
        """Says for whom the current task is about to connect."""
        _host.set(host)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _socket(self, found: tuple[int, int, int, str, tuple[str | int, ...]]) -> socket.socket:
        """The last gate: whatever led here, this is the address that is about to be connected to."""
        family, kind, protocol, _, (address, port, *_) = found
        _refuse(self._against(_host.get(str(address)), str(address), int(port)))
        return socket.socket(family, kind, protocol)

    def _against(self, host: str, address: str, port: int) -> str | None:
        known = literal(address)
        return f"{address!r} is no address" if known is None else self._rules.against_address(host, known, port)

    async def _ask_the_system(self, host: str, port: int) -> list[str]:
        """In threads of its own: names that nobody answers for must not hold up others."""
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
    except OSError as error:  # of ssl too
        raise InvalidSetting(f"SEXTON_HTTP_CA_FILE: {ca_file} cannot be read: {error.strerror or error}") from None


def _look_up(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)]


def _refuse(refusal: str | None) -> None:
    if refusal is not None:
        raise OutboundRefused(f"refused to call: {refusal}; SEXTON_OUTBOUND_ALLOW opens what it names")


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
