"""Outbound safety: which addresses a job may call. Each hostile form is one case; the allow-list allows only what it names."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from sexton.domain.fault import Invalid
from sexton.domain.outbound import Allowed, Ports, Rules, refused_because

PORTS = Ports.of(["80", "443"])
NONE = Rules((), PORTS)


def rules(*entries: str) -> Rules:
    return Rules(tuple(Allowed.of(entry) for entry in entries), PORTS)


def against(judged: Rules, host: str, address: str, port: int = 443) -> str | None:
    return judged.against_address(host, ip_address(address), port)


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "metadata"),
        ("169.254.0.1", "link-local"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("100.64.0.1", "carrier-grade"),
        ("100.127.255.255", "carrier-grade"),
        ("0.0.0.0", "this host"),
        ("0.1.2.3", "this host"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("192.0.0.192", "reserved"),
        ("192.0.2.1", "documentation"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("198.18.0.1", "benchmarks"),
        ("192.88.99.1", "6to4"),
        ("::1", "loopback"),
        ("::", "this host"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("febf::1", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:a9fe:a9fe", "metadata"),
        ("::ffff:10.0.0.1", "private"),
        ("::127.0.0.1", "embedded"),
        ("::8.8.8.8", "embedded"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b:1::1", "translation"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("2002:c0a8:101::1", "private"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("2a00:1450::5efe:7f00:1", "loopback"),
        ("2a00:1450::200:5efe:a00:1", "private"),
        ("100::1", "not allocated"),
        ("4000::1", "not allocated"),
        ("fe80::1%eth0", "interface"),
    ],
)
def test_an_address_that_is_not_public_is_rejected(address: str, word: str) -> None:
    assert word in (refused_because(ip_address(address)) or "")
    assert address.partition("%")[0].split(":")[0] in (against(NONE, "innocent.example", address) or "")


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_a_public_address_is_allowed(address: str) -> None:
    assert refused_because(ip_address(address)) is None
    assert against(NONE, "innocent.example", address) is None


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.0x0.0x0.0x1",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "0",
        "0x",
        "00.0.0.0",
        "127.0.0.01",
        "256.256.256.256",
        "1.2.3.4.5",
        "example.1",
        "999999999999",
        "127.0.0.1%00.example.com",
        "%31%32%37.0.0.1",
        "localhost%2eexample.com",
        "fe80::1%eth0",
        "[::1",
        "v1.fe80::a",
        "ex ample.com",
        "example..com",
        ".example.com",
        "-example.com",
        "exam\nple.com",
        "example.com/",
        "user@example.com",
        "example\u3002com",
        "\u0661\u0662\u0667.0.0.1",
        "",
        "a" * 64 + ".example",
        ".".join(["a" * 60] * 5),
    ],
)
def test_a_host_in_an_unusual_notation_is_rejected_before_it_is_resolved(host: str) -> None:
    assert NONE.against_host(host, 80) is not None
    assert rules("localhost:*", "127.0.0.0/8:*", "*.example.com").against_host(host, 80) is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:7f00:1", "0:0:0:0:0:ffff:7f00:1", "169.254.169.254"])
def test_a_host_that_is_an_address_is_checked_at_once(host: str) -> None:
    assert NONE.against_host(host, 80) is not None


@pytest.mark.parametrize(
    "host", ["example.com", "EXAMPLE.com", "example.com.", "xn--bcher-kva.example", "a_b.example", "8.8.8.8"]
)
def test_an_ordinary_host_passes(host: str) -> None:
    assert NONE.against_host(host, 443) is None


@pytest.mark.parametrize("port", [22, 25, 110, 465, 3306, 5432, 6379, 8474, 11211, 65535])
def test_ports_of_other_protocols_are_rejected(port: int) -> None:
    assert f"port {port}" in (NONE.against_host("example.com", port) or "")
    assert f"port {port}" in (against(NONE, "example.com", "8.8.8.8", port) or "")


class TestTheAllowList:
    @pytest.mark.parametrize(
        ("entry", "host", "address", "port"),
        [
            ("10.1.0.0/16", "a.example", "10.1.2.3", 443),
            ("10.1.2.3", "10.1.2.3", "10.1.2.3", 80),
            ("10.1.0.0/16:9000", "a.example", "10.1.2.3", 9000),
            ("fd00::/8", "a.example", "fd00::7", 443),
            ("[fd00::7]:8443", "a.example", "fd00::7", 8443),
            ("billing.internal", "billing.internal", "10.9.9.9", 443),
            ("billing.internal", "BILLING.internal.", "10.9.9.9", 443),
            ("billing.internal:9000", "billing.internal", "127.0.0.1", 9000),
            ("billing.internal:*", "billing.internal", "127.0.0.1", 22),
            ("*.svc.cluster.local", "a.b.svc.cluster.local", "10.9.9.9", 80),
            ("mail.example:25", "mail.example", "8.8.8.8", 25),
            ("169.254.169.254/32", "169.254.169.254", "169.254.169.254", 80),
        ],
    )
    def test_the_allow_list_allows_what_it_names(self, entry: str, host: str, address: str, port: int) -> None:
        assert rules(entry).against_host(host, port) is None
        assert against(rules(entry), host, address, port) is None
        assert against(NONE, host, address, port) is not None

    @pytest.mark.parametrize(
        ("entry", "host", "address", "port"),
        [
            ("10.1.0.0/16", "a.example", "10.2.0.1", 443),
            ("10.1.0.0/16", "a.example", "10.1.2.3", 22),
            ("10.1.0.0/16:9000", "a.example", "10.1.2.3", 443),
            ("10.1.0.0/16", "a.example", "::ffff:10.1.2.3", 443),
            ("billing.internal", "evil.billing.internal", "10.9.9.9", 443),
            ("billing.internal", "notbilling.internal", "10.9.9.9", 443),
            ("billing.internal", "10.9.9.9", "10.9.9.9", 443),
            ("billing.internal:9000", "billing.internal", "10.9.9.9", 443),
            ("billing.internal:9000", "billing.internal", "10.9.9.9", 22),
            ("*.svc.cluster.local", "svc.cluster.local", "10.9.9.9", 443),
            ("*.svc.cluster.local", "evilsvc.cluster.local", "10.9.9.9", 443),
            ("*.svc.cluster.local", "a.svc.cluster.local", "169.254.169.254", 80),
            ("billing.internal", "billing.internal", "224.0.0.1", 443),
            ("billing.internal", "billing.internal", "0.0.0.0", 443),
        ],
    )
    def test_the_allow_list_allows_nothing_else(self, entry: str, host: str, address: str, port: int) -> None:
        assert against(rules(entry), host, address, port) is not None

    @pytest.mark.parametrize(
        "entry", ["", "10.1.0.1/16", "10.1.0.0/33", "a b", "http://a.example", "a.example:99999", "*", "127.1"]
    )
    def test_an_invalid_entry_is_rejected(self, entry: str) -> None:
        with pytest.raises(Invalid, match="outbound_allow"):
            Allowed.of(entry)

    @pytest.mark.parametrize("word", ["", "0", "65536", "90-80", "http", "-1"])
    def test_an_invalid_port_is_rejected(self, word: str) -> None:
        with pytest.raises(Invalid, match="outbound_ports"):
            Ports.of([word])

    def test_a_range_of_ports(self) -> None:
        ports = Ports.of(["80", "8000-8999"])
        assert (80 in ports, 8500 in ports, 7999 in ports, 9000 in ports) == (True, True, False, False)
        assert str(ports) == "80, 8000-8999"


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "printer.local", "metadata.google.internal", "router.home.arpa"])
def test_behind_a_proxy_local_names_are_rejected_because_their_addresses_are_unknown(host: str) -> None:
    assert NONE.against_name(host, 443) is not None
    assert rules(host).against_name(host, 443) is None


@pytest.mark.parametrize(
    ("host", "is_refused"), [("example.com", False), ("127.0.0.1", True), ("127.1", True), ("8.8.8.8", False)]
)
def test_behind_a_proxy_the_url_is_still_checked(host: str, is_refused: bool) -> None:
    assert (NONE.against_name(host, 443) is not None) is is_refused


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_localhost_on_the_allow_list_allows_its_addresses(host: str) -> None:
    """F3. But no other name that resolves there: the owner of a DNS zone could choose it."""
    assert NONE.against_host("127.0.0.1", 80) is not None
    assert rules("localhost").against_host(host, 80) is None
    assert rules("localhost:9000").against_host(host, 9000) is None
    assert rules("localhost:9000").against_host(host, 9001) is not None
    assert rules("localhost").against_address(host, ip_address("127.0.0.1"), 80) is None
    assert rules("localhost").against_address("evil.example", ip_address("127.0.0.1"), 80) is not None
    assert rules("localhost").against_host("127.0.0.2", 80) is not None
