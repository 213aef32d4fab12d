"""C2, F3: valid gRPC calls, as a job describes them."""

from __future__ import annotations

import pytest

from sexton.domain.fault import Invalid
from sexton.domain.targets import GrpcTarget, SecretRef

METHOD = "billing.v1.Invoices/Send"


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("billing.example:443", "billing.example", 443),
        ("203.0.113.7:50051", "203.0.113.7", 50051),
        ("[2001:db8::7]:1", "2001:db8::7", 1),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    target = GrpcTarget(address, METHOD)
    target.check()
    assert target.host_and_port == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "billing.example",
        "billing.example:",
        ":443",
        "billing.example:0",
        "billing.example:65536",
        "billing.example:4 43",
        "billing.example:443/path",
        "https://billing.example:443",
        "dns:///billing.example:443",
        "unix:/run/docker.sock",
        "unix:///run/x:1",
        "user@billing.example:443",
        "2001:db8::7:443",
        "[billing.example]:443",
        "a\nb:443",
        f"{'a' * 300}:443",
    ],
)
def test_no_other_notation_is_accepted(address: str) -> None:
    """F3: gRPC itself would understand several of them."""
    with pytest.raises(Invalid, match=r"^address: "):
        GrpcTarget(address, METHOD).check()


@pytest.mark.parametrize(
    "method", ["", "Send", "billing.v1.Invoices", "billing.v1.Invoices/", "/Send", "a/b/c", "a b/c", "ä/b", "a..b/c"]
)
def test_a_method_is_named_in_full(method: str) -> None:
    with pytest.raises(Invalid, match=r"^method: .*package.Service/Method"):
        GrpcTarget("billing.example:443", method).check()


def test_a_method_may_be_written_as_in_grpc() -> None:
    assert GrpcTarget("billing.example:443", f"/{METHOD}").service_and_method == ("billing.v1.Invoices", "Send")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("X-Team", "a", "not a valid key"),
        ("x team", "a", "not a valid key"),
        ("", "a", "not a valid key"),
        ("grpc-timeout", "1S", "set by Sexton or by gRPC"),
        ("idempotency-key", "a", "set by Sexton or by gRPC"),
        ("sexton-run", "a", "set by Sexton or by gRPC"),
        ("traceparent", "a", "set by Sexton or by gRPC"),
        ("x-data-bin", "a", "binary"),
        ("x-team", "a\r\nx-admin: 1", "not printable"),
        ("x-team", "ü", "not printable"),
        ("x-team", "a" * 5000, "the limit is 4,096"),
        ("x-team", SecretRef("../passwd"), "secret name"),
        ("x-team", SecretRef("a", "\n"), "not printable"),
    ],
)
def test_metadata_that_cannot_be_sent_is_named(key: str, value: str | SecretRef, words: str) -> None:
    with pytest.raises(Invalid, match=f"^metadata.*{words}"):
        GrpcTarget("billing.example:443", METHOD, metadata={key: value}).check()


def test_there_is_a_limit_to_metadata() -> None:
    with pytest.raises(Invalid, match="metadata: has 51 entries"):
        GrpcTarget("billing.example:443", METHOD, metadata={f"k{n}": "v" for n in range(51)}).check()
