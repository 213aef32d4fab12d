"""C2, F3: secure calls: who answers must be who was called, and the certificate is asked for by name, wherever that leads."""

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
    """Calls itself billing.example."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("billing.example").configure_cert(context)
    async with serving(context) as server:
        yield server


@pytest.fixture
async def calling() -> AsyncIterator[Calling]:
    async with callers() as make:
        yield make


async def test_a_host_that_proves_its_name_is_called(calling: Calling, server: Server, ca_file: Path) -> None:
    caller = calling(lookup=here, ca_file=ca_file)
    assert (await caller.call(HttpTarget(f"https://billing.example:{server.port}/")))["status"] == 200
    assert server.received[0].headers["host"] == f"billing.example:{server.port}"


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
async def test_one_that_proves_another_is_told_nothing(calling: Calling, server: Server, ca_file: Path, host: str) -> None:
    caller = calling(lookup=here, ca_file=ca_file)
    with pytest.raises(TargetFailed, match="TLS certificate was rejected"):
        await caller.call(HttpTarget(f"https://{host}:{server.port}/"))
    assert server.received == []


async def test_nor_is_one_that_nobody_vouches_for(calling: Calling, server: Server) -> None:
    with pytest.raises(TargetFailed, match="TLS certificate was rejected"):
        await calling(lookup=here).call(HttpTarget(f"https://billing.example:{server.port}/"))
    assert server.received == []


async def test_a_server_that_speaks_no_tls_is_transient(calling: Calling, ca_file: Path) -> None:
    async with serving() as plain:
        with pytest.raises(TargetFailed, match=r"TLS connection failed|connection broke|no connection"):
            await calling(lookup=here, ca_file=ca_file).call(HttpTarget(f"https://billing.example:{plain.port}/"))
