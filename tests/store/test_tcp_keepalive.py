"""A connection to a database whose host vanishes fails within seconds, whatever the statement timeout (B9, D4)."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import pytest

from sexton.store.postgres.tcp_keepalive import SILENCE_S, set_tcp_keepalive

if TYPE_CHECKING:
    from sexton.store.embedded.server import EmbeddedPostgres

ROOT = Path(__file__).parents[2]


async def _in_a_network_of_its_own(*command: str) -> tuple[int | None, str, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--net", *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        return None, "", "there is no unshare"
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_statement_fails_when_packets_vanish(postgres_server: EmbeddedPostgres) -> None:
    """B9, D4: one that was waiting and one that was sent afterwards, on a loopback that goes down; and the next connection
    works. One without the TCP options still waits: for the whole statement timeout."""
    code, _, _ = await _in_a_network_of_its_own("ip", "link", "set", "lo", "up")
    if code != 0:
        pytest.skip("needs unshare and ip, and the right to make a network namespace (root)")
    place = dict(parse_qsl(urlsplit(postgres_server.url("postgres")).query))
    path = f"{place['host']}/.s.PGSQL.{place['port']}"
    code, out, err = await _in_a_network_of_its_own(sys.executable, "-m", "tests.store.vanishing", path)
    assert code == 0, err
    took_s = json.loads(out)
    assert 1.5 < took_s["waited"] < 4.5
    assert 1.5 < took_s["sent"] < 4.5
    assert took_s["waited_plainly"] is None


async def test_a_tcp_connection_has_keepalive_and_a_local_one_is_unchanged() -> None:
    ours, theirs = socket.socketpair()
    _, local = await asyncio.open_connection(sock=ours)
    set_tcp_keepalive(local.transport)
    local.close()
    theirs.close()

    listener = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with listener:
        _, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        set_tcp_keepalive(writer.transport)
        connection = writer.transport.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_S * 1000
        writer.close()
