"""When a server is known to be down: only if the URL names no other one, so that all sessions are on it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from sexton.errors import DatabaseDown, DatabaseUnavailable
from sexton.store.database import Postgres
from sexton.store.postgres.only_server import OnlyServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_STARTING = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
_SSL = struct.pack("!ii", 8, 80877103)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if await reader.readexactly(8) == _SSL:
        writer.write(b"N")
        await reader.readexactly(8)
    writer.write(b"E" + struct.pack("!i", len(_STARTING) + 4) + _STARTING)
    await writer.drain()
    writer.close()


@pytest.fixture
async def starting() -> AsyncIterator[str]:
    """The host and port of a server that starts, or of a standby without hot_standby."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def failing(url: str) -> AsyncIterator[Postgres]:
    database = await Postgres.open(url, direct=True)
    yield database
    await database.close()


async def error_of(url: str) -> type[DatabaseUnavailable]:
    async with failing(url) as database:
        with pytest.raises(DatabaseUnavailable) as raised:
            async with database.connection():
                pass
    return raised.type


async def test_one_that_says_it_is_starting_is_down(starting: str) -> None:
    assert await error_of(f"postgresql://u@{starting}/d") is DatabaseDown


@pytest.mark.parametrize("hosts", ["127.0.0.1:1,{}", "{},127.0.0.1:1"])
async def test_one_of_several_is_not(starting: str, hosts: str) -> None:
    """The worker's sessions, and the sweepers', may be on another one that only refuses this host."""
    assert await error_of(f"postgresql://u@{hosts.format(starting)}/d") is DatabaseUnavailable


async def test_a_refused_connection_proves_nothing() -> None:
    assert await error_of("postgresql://u@127.0.0.1:1/d") is DatabaseUnavailable


async def test_one_whose_unix_socket_is_not_there_is_down(tmp_path: Path) -> None:
    assert await error_of(f"postgresql://u@/d?host={tmp_path}") is DatabaseDown


async def test_a_certificate_that_is_not_there_proves_nothing(tmp_path: Path) -> None:
    missing = f"sslmode=require&sslcert={tmp_path}/none.crt&sslkey={tmp_path}/none.key"
    assert await error_of(f"postgresql://u@127.0.0.1:1/d?{missing}") is DatabaseUnavailable
    (tmp_path / ".s.PGSQL.5433").touch()
    assert await error_of(f"postgresql://u@/d?host={tmp_path}&port=5433&{missing}") is DatabaseUnavailable


@pytest.mark.parametrize(
    ("url", "only"),
    [
        ("postgresql://u:p@one/d", OnlyServer(None)),
        ("postgresql://u@[::1]:5433/d", OnlyServer(None)),
        ("postgresql://u@%2Frun%2Fpg:5433/d", OnlyServer("/run/pg/.s.PGSQL.5433")),
        ("postgresql:///d?host=/run/pg&port=5434", OnlyServer("/run/pg/.s.PGSQL.5434")),
        ("postgresql:///d?host=one,two", None),
        ("postgresql://one,two/d", None),
        ("postgresql:///d", None),
    ],
)
def test_which_server_a_url_names(url: str, only: OnlyServer | None) -> None:
    assert OnlyServer.of(url) == only
