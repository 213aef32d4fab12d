"""The programs that the drill needs: PostgreSQL, Patroni, etcd and HAProxy, from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
POSTGRES_FOLDERS = Path("/usr/lib/postgresql")
PACKAGES = {
    "postgres": "postgresql",
    "patroni": "patroni",
    "etcd": "etcd-server",
    "haproxy": "haproxy",
    "setpriv": "util-linux",
}


class Programs(NamedTuple):
    postgres_bin: Path
    patroni: str
    etcd: str
    haproxy: str

    def versions(self) -> dict[str, str]:
        commands = {
            "postgresql": [str(self.postgres_bin / "postgres"), "--version"],
            "patroni": [self.patroni, "--version"],
            "etcd": [self.etcd, "--version"],
            "haproxy": [self.haproxy, "-v"],
        }
        return {name: _first_line(command) for name, command in commands.items()}


class Missing(Exception):
    """A program is missing. The message says how to install it."""


def find() -> Programs:
    found = {name: shutil.which(name, path=PATH) for name in ("patroni", "etcd", "haproxy", "setpriv")}
    servers = [folder / "bin" for folder in POSTGRES_FOLDERS.glob("*") if (folder / "bin" / "postgres").exists()]
    newest = max(servers, key=lambda folder: int(folder.parent.name), default=None)
    missing = [name for name, path in {"postgres": newest, **found}.items() if path is None]
    if missing or newest is None:
        packages = " ".join(PACKAGES[name] for name in missing)
        raise Missing(
            f"the drill needs {', '.join(missing)}: install it with `apt-get install --no-install-recommends {packages}` "
            "(Debian 12 or newer; only the programs are used, their services need not run)"
        )
    return Programs(newest, str(found["patroni"]), str(found["etcd"]), str(found["haproxy"]))


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].strip()
