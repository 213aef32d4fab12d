"""The rules that allow or reject an outbound call: its host, its port, and every address that the host resolves to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from sexton.domain.fault import Invalid

from .addresses import LINK_LOCAL, METADATA, MULTICAST, UNSPECIFIED, Address, Network, literal, refused_because

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"(?P<first>\d{1,5})(-(?P<last>\d{1,5}))?")
# A name on the allow-list opens the addresses that it resolves to, except these, which only a CIDR opens: the owner of the DNS
# zone could let the name resolve to them.
_ONLY_BY_CIDR = (LINK_LOCAL, METADATA, MULTICAST, UNSPECIFIED)
# Names that resolve to the local machine or network. Usually the address shows that, but a proxy hides the address.
_LOOPBACK = ("127.0.0.1", "::1")  # `localhost` on the allow-list opens these hosts too, but no other name that resolves there
_LOCAL_NAMES = ("localhost", "localdomain", "local", "internal", "home.arpa")


@dataclass(frozen=True, slots=True)
class Ports:
    """Ranges of ports: `80`, `8000-8999`."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, words: Iterable[str | int], *, field: str = "outbound_ports") -> Ports:
        ranges = []
        for word in words:
            found = _PORT.fullmatch(str(word))
            first = int(found["first"]) if found else 0
            last = int(found["last"] or first) if found else 0
            if not 1 <= first <= last <= 65_535:
                raise Invalid(field, f"{word!r} is not a port; write 443 or 8000-8999")
            ranges.append((first, last))
        return cls(tuple(ranges))

    def __contains__(self, port: int) -> bool:
        return any(first <= port <= last for first, last in self.ranges)

    def __str__(self) -> str:
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of the allow-list: `10.1.0.0/16`, `billing.internal`, `*.svc.cluster.local`, `[fd00::1]:8443`; `localhost`
    opens 127.0.0.1 and ::1 as well. A port limits it to that port, which need not be in `outbound_ports`; `:*` opens all
    ports."""

    network: Network | None
    name: str | None  # `.svc.cluster.local` for `*.svc.cluster.local`
    port: int | None  # none: those of outbound_ports; 0: any

    @classmethod
    def of(cls, entry: str, *, field: str = "outbound_allow") -> Allowed:
        host, port = _split(entry.strip().lower(), entry, field)
        try:
            return cls(ip_network(host), None, port)
        except ValueError as error:
            if "has host bits set" in str(error):
                raise Invalid(field, f"{entry!r} is not a network: {error}") from None
        name = host.removeprefix("*.")
        if not _NAME.fullmatch(name) or _ends_in_a_number(name):
            raise Invalid(field, f"{entry!r} is neither a network (10.1.0.0/16) nor a host (billing.internal, *.example.com)")
        name = name.rstrip(".")
        return cls(None, f".{name}" if host.startswith("*.") else name, port)

    def opens_port(self, port: int, ports: Ports) -> bool:
        return port in ports if self.port is None else self.port in (0, port)

    def opens_name(self, host: str) -> bool:
        if self.name is None:
            return False
        if self.name == "localhost" and host in _LOOPBACK:
            return True
        return host.endswith(self.name) if self.name.startswith(".") else host == self.name

    def opens_address(self, address: Address) -> bool:
        return self.network is not None and address in self.network


def _split(entry: str, given: str, field: str) -> tuple[str, int | None]:
    """Host or network, and port. Brackets separate an IPv6 address from its port."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(\*|\d+))?", entry)
    plain = re.fullmatch(r"([^:\[\]]*)(?::(\*|\d+))?", entry)
    found = bracketed or plain
    if found is None:
        return entry, None  # an IPv6 network without brackets
    host, port = found[1], found[2]
    if port is None:
        return host, None
    if port != "*" and not 1 <= int(port) <= 65_535:
        raise Invalid(field, f"{given!r} has no port between 1 and 65535")
    return host, 0 if port == "*" else int(port)


@dataclass(frozen=True, slots=True)
class Rules:
    allowed: Sequence[Allowed] = ()
    ports: Ports = Ports(((80, 80), (443, 443)))

    def against_host(self, host: str, port: int) -> str | None:
        """Why a host may not be called, before it is resolved; `None` if it may."""
        host = host.lower()
        address = literal(host)
        if address is not None:
            return self.against_address(host, address, port)
        if not _NAME.fullmatch(host) or len(host) > 253:
            return f"{host!r} is not a valid host name"
        if _ends_in_a_number(host):
            return f"{host!r} is an address in an unusual notation; write it as 203.0.113.7 or [2001:db8::7]"
        opening = [entry for entry in self.allowed if entry.network is not None or entry.opens_name(_plain(host))]
        return None if self._opens(opening, port) or port in self.ports else self._wrong_port(port)

    def against_name(self, host: str, port: int) -> str | None:
        """As `against_host`, for calls through a proxy: the proxy resolves the name, so the worker never sees the address."""
        refusal = self.against_host(host, port)
        if refusal is not None or literal(host) is not None:
            return refusal
        name = _plain(host)
        is_local = name in _LOCAL_NAMES or name.endswith(tuple(f".{local}" for local in _LOCAL_NAMES))
        is_opened = any(entry.opens_name(name) for entry in self.allowed)
        return f"{host!r} is the name of a private network" if is_local and not is_opened else None

    def against_address(self, host: str, address: Address, port: int) -> str | None:
        """Why this address, to which `host` resolved, may not be called; `None` if it may."""
        why, name = refused_because(address), _plain(host)
        opening = [
            entry
            for entry in self.allowed
            if entry.opens_address(address) or (why not in _ONLY_BY_CIDR and entry.opens_name(name))
        ]
        if self._opens(opening, port):
            return None
        if why is None:
            return None if port in self.ports else self._wrong_port(port)
        if opening:  # an entry matches, but not on this port; private addresses have no other ports
            return f"port {port} of {host} is not open"
        return f"{address} is {why}" if host == str(address) else f"{host} is at {address}, which is {why}"

    def _opens(self, opening: Iterable[Allowed], port: int) -> bool:
        return any(entry.opens_port(port, self.ports) for entry in opening)

    def _wrong_port(self, port: int) -> str:
        return f"port {port} is not among {self.ports} (outbound_ports)"


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _ends_in_a_number(host: str) -> bool:
    """Such a host is an IPv4 address in an unusual notation: 2130706433, 0x7f.1, 127.1. The operating system accepts them."""
    return _NUMBER.fullmatch(_plain(host).rpartition(".")[2]) is not None
