"""Which addresses a job may call only if the allow-list opens them: all that are not public internet addresses.

An IPv6 address that contains an IPv4 address is judged by the IPv4 address, because the packets go there.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA = "the metadata service of a cloud provider"
LINK_LOCAL = "link-local, the range of cloud metadata services"
MULTICAST = "multicast"
UNSPECIFIED = "this host on this network"

_IPV4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), why)
    for network, why in (
        ("127.0.0.0/8", "loopback"),
        ("10.0.0.0/8", "private"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("169.254.0.0/16", LINK_LOCAL),
        ("168.63.129.16/32", METADATA),
        ("100.100.100.200/32", METADATA),
        ("100.64.0.0/10", "shared by carrier-grade NAT"),
        ("0.0.0.0/8", UNSPECIFIED),
        ("224.0.0.0/4", MULTICAST),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("192.88.99.0/24", "a relay of 6to4"),
        ("198.18.0.0/15", "for benchmarks"),
    )
)
_IPV6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), why)
    for network, why in (
        ("::1/128", "loopback"),
        ("::/128", UNSPECIFIED),
        ("fc00::/7", "unique-local, which is private"),
        ("fe80::/10", LINK_LOCAL),
        ("fec0::/10", "site-local, which is private"),
        ("ff00::/8", MULTICAST),
        ("::/96", "an embedded IPv4 address"),
        ("64:ff9b:1::/48", "a translation to IPv4"),
        ("2001::/32", "a Teredo tunnel"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
        ("5f00::/16", "for segment routing"),
    )
)
_GLOBAL = IPv6Network("2000::/3")  # all that is allocated as public internet
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)


def literal(host: str) -> Address | None:
    """The address, if the host is an IP address in its usual notation."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def refused_because(address: Address) -> str | None:
    """Why an address may not be called; `None` if it is public."""
    if isinstance(address, IPv4Address):
        return next((why for network, why in _IPV4 if address in network), None)
    if address.scope_id is not None:
        return "bound to a network interface"
    carried = _carried(address)
    if carried is not None:
        why = refused_because(carried)
        return None if why is None else f"an embedded {carried}, which is {why}"
    why = next((why for network, why in _IPV6 if address in network), None)
    return why or (None if address in _GLOBAL else "not allocated as a public address")


def _carried(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP and address in _GLOBAL:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
