"""What a server may answer instead of a session, on a real one where it can be provoked. Each is an outage, which services wait
for and log once; none is an unexpected error."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from sexton.errors import DatabaseRefused, DatabaseUnavailable
from sexton.store.database import Postgres, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import StartServer
    from tests.store.support import Conn

# In front of the rules of the test server, which trust everyone.
RULES = """\
local all wary scram-sha-256
host all wary all scram-sha-256
local all banned reject
host all banned all reject
"""
STATES = (
    "08000 08001 08003 08004 08006 08P01 22023 25006 53000 53200 53300 55006 55P03 57000 57P01 57P02 57P03 57P04 57P05"
    " 58000 58P01 P0001 XX000 XX001"
)
_SSL = struct.pack("!ii", 8, 80877103)


@dataclass(frozen=True)
class Refusal:
    name: str
    state: str
    says: str
    cause: str = "SELECT"  # {} is the database
    role: str = "clerk"
    error: type[DatabaseUnavailable] = DatabaseUnavailable


REFUSALS = (
    Refusal(
        "closed",
        "55000",
        "not currently accepting connections; allow connections to it again",
        "ALTER DATABASE {} ALLOW_CONNECTIONS false",
        error=DatabaseRefused,
    ),
    Refusal("renamed", "3D000", "does not exist", "ALTER DATABASE {} RENAME TO elsewhere"),
    Refusal("dropped", "3D000", "does not exist", "DROP DATABASE {} WITH (FORCE)"),
    Refusal("revoked", "42501", "permission denied", "REVOKE CONNECT ON DATABASE {} FROM PUBLIC", error=DatabaseRefused),
    Refusal("at_its_limit", "53300", "too many connections", "ALTER DATABASE {} CONNECTION LIMIT 0"),
    Refusal("used_up", "53300", "too many connections", "ALTER ROLE clerk CONNECTION LIMIT 0"),
    Refusal("locked_out", "28000", "not permitted to log in", "ALTER ROLE clerk NOLOGIN"),
    Refusal("nobody", "28000", "does not exist", role="nobody"),
    Refusal("banned", "28000", "rejects connection", role="banned"),
    Refusal("wrong_password", "28P01", "password authentication failed", role="wary"),
)


async def error_of(url: str) -> DatabaseUnavailable:
    """The same from a pool and from a single connection."""
    database = await Postgres.open(url, direct=True)
    with pytest.raises(DatabaseUnavailable) as pooled:
        async with database.connection():
            pass
    await database.close()
    with pytest.raises(DatabaseUnavailable) as single:
        await connect(url)
    assert str(single.value) == str(pooled.value)
    return single.value


async def guard(admin: Conn) -> None:
    file = Path(await admin.fetchval("SELECT current_setting('hba_file')"))
    await asyncio.to_thread(lambda: file.write_text(RULES + file.read_text()))
    before = await admin.fetchval("SELECT pg_conf_load_time()")
    await admin.execute("SELECT pg_reload_conf()")
    async with asyncio.timeout(30):
        while await admin.fetchval("SELECT pg_conf_load_time()") == before:  # noqa: ASYNC110  (no notification for this)
            await asyncio.sleep(0.01)


async def test_a_server_that_refuses_a_session_is_an_outage(own_postgres_server: StartServer) -> None:
    """D4."""
    server = own_postgres_server()
    admin = await asyncpg.connect(server.url("postgres"))
    await admin.execute("CREATE ROLE clerk LOGIN; CREATE ROLE banned LOGIN; CREATE ROLE wary LOGIN PASSWORD 'right'")
    await guard(admin)
    for refusal in REFUSALS:
        parts = urlsplit(server.url(refusal.name))
        url = urlunsplit(parts._replace(netloc=f"{refusal.role}:wrong@{parts.netloc.rpartition('@')[2]}"))
        await admin.execute(f"CREATE DATABASE {refusal.name}")
        await admin.execute(refusal.cause.format(refusal.name))
        error = await error_of(url)
        assert type(error) is refusal.error, refusal.name
        assert getattr(error.__cause__, "sqlstate", None) == refusal.state, refusal.name
        assert refusal.says in str(error), refusal.name
        await admin.execute("ALTER ROLE clerk LOGIN CONNECTION LIMIT -1")
    await admin.close()


@asynccontextmanager
async def answering(state: str) -> AsyncIterator[str]:
    """A server that answers each start of a session with this error. Yields its URL."""
    told = f"SFATAL\0VFATAL\0C{state}\0Mno session\0\0".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(8) == _SSL:
            writer.write(b"N")
            await reader.readexactly(8)
        writer.write(b"E" + struct.pack("!i", len(told) + 4) + told)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"postgresql://u@127.0.0.1:{server.sockets[0].getsockname()[1]}/d"


@pytest.mark.parametrize("state", STATES.split())
async def test_whatever_its_code(state: str) -> None:
    """D4: of a disk that cannot be read, of a login trigger, of a pooler."""
    async with answering(state) as url:
        await error_of(url)


@pytest.mark.parametrize(
    "ending",
    [
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SET idle_session_timeout = '1ms'; SELECT pg_sleep(0)",
        "SET idle_in_transaction_session_timeout = '1ms'; BEGIN",
    ],
)
async def test_a_session_that_the_server_ends_is_an_outage(database: Postgres, ending: str) -> None:
    """D4: an administrator, or a timeout of the role."""

    async def use_it() -> None:
        async with database.connection() as connection:
            await connection.execute(ending)
            await asyncio.sleep(0.05)
            await connection.fetch("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        await use_it()
    async with database.connection() as connection:
        assert await connection.fetch("SELECT 1")


async def test_the_same_code_of_a_statement_is_a_bug(database: Postgres) -> None:
    """D4: 55000 is no outage if the session goes on."""
    async with database.connection() as connection:
        await connection.execute("CREATE TEMPORARY SEQUENCE s")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await connection.fetch("SELECT currval('s')")
        assert await connection.fetch("SELECT 1")
