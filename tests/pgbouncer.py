"""Debian's PgBouncer in front of a test database, in the mode that breaks the most: transactions, two connections."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT = 6432  # only part of the socket's name: each pooler listens in a directory of its own, so no port can be taken
START_TIMEOUT_S = 10

CONFIGURATION = """\
[databases]
* = {upstream}

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {directory}
auth_type = any
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def pgbouncer(url: str, *, pool_size: int = 2) -> Iterator[str]:
    """Pools the database at `url`; yields the URL of the pooler."""
    program = find_pgbouncer()
    assert program is not None, "callers check find_pgbouncer first"
    upstream = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    with tempfile.TemporaryDirectory(prefix="sexton-pgbouncer-") as name:
        directory = Path(name)
        (directory / "pgbouncer.ini").write_text(
            CONFIGURATION.format(
                upstream=" ".join(f"{key}={upstream[key]}" for key in ("host", "port", "user", "password") if key in upstream),
                port=PORT,
                directory=directory,
                pool_size=pool_size,
            )
        )
        user = _user(upstream["host"])
        if user is not None:
            shutil.chown(directory, user)
        # ends with pytest, even if that is killed
        command = ["setpriv", "--pdeathsig", "TERM", program, str(directory / "pgbouncer.ini")]
        with (directory / "log").open("wb") as log, subprocess.Popen(command, user=user, stderr=log) as process:
            try:
                _wait_until_listening(process, directory)
                yield f"postgresql://postgres@/{quote(upstream['dbname'])}?host={directory}&port={PORT}"
            finally:
                process.terminate()


def _user(host: str) -> str | None:
    """PgBouncer refuses to run as root, so it runs as the owner of the server's socket directory, which other users cannot
    enter."""
    if os.geteuid() != 0:
        return None
    return pwd.getpwuid(os.stat(host).st_uid).pw_name if host.startswith("/") else "postgres"


def _wait_until_listening(process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(directory / f".s.PGSQL.{PORT}")) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError(f"pgbouncer did not start:\n{(directory / 'log').read_text()}")
