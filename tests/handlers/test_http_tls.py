"""C2, F3: TLS: the server must prove the called name, and the certificate is requested by that name, whatever the address."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from sexton.domain.targets import HttpTarget
from sexton.errors import TargetFailed

from .http_target import Calling, Server, callers, serving


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
async def server(authority: trustme.CA) -> AsyncIterator[Server]:
    """Its certificate is for billing.example."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("billing.example").configure_cert(context)
    async with serving(context) as server:
        yield server


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    async with callers() as make:
        yield make


async def test_a_host_with_a_valid_certificate_is_called(calling: Calling, server: Server, ca_file: Path) -> None:
    caller = calling(lookup=here, ca_file=ca_file)
    assert (await caller.call(HttpTarget(f"https://billing.example:{server.port}/")))["status"] == 200
    assert server.received[0].headers["host"] == f"billing.example:{server.port}"


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
async def test_a_host_with_a_certificate_for_another_name_is_sent_nothing(
    calling: Calling, server: Server, ca_file: Path, host: str
) -> None:
    caller = calling(lookup=here, ca_file=ca_file)
    with pytest.raises(TargetFailed, match="TLS certificate was rejected"):
        await caller.call(HttpTarget(f"https://{host}:{server.port}/"))
    assert server.received == []


async def test_a_host_with_an_untrusted_certificate_is_sent_nothing(calling: Calling, server: Server) -> None:
    with pytest.raises(TargetFailed, match="TLS certificate was rejected"):
        await calling(lookup=here).call(HttpTarget(f"https://billing.example:{server.port}/"))
    assert server.received == []


async def test_a_server_without_tls_is_transient(calling: Calling, ca_file: Path) -> None:
    async with serving() as plain:
        with pytest.raises(TargetFailed, match=r"TLS connection failed|connection broke|no connection"):
            await calling(lookup=here, ca_file=ca_file).call(HttpTarget(f"https://billing.example:{plain.port}/"))
