"""What the drill needs from the machine: PostgreSQL, Patroni, etcd and HAProxy, as Debian packs them."""

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
    """Its text says how to get what is missing."""


def find() -> Programs:
    found = {name: shutil.which(name, path=PATH) for name in ("patroni", "etcd", "haproxy", "setpriv")}
    servers = [folder / "bin" for folder in POSTGRES_FOLDERS.glob("*") if (folder / "bin" / "postgres").exists()]
    newest = max(servers, key=lambda folder: int(folder.parent.name), default=None)
    missing = [name for name, path in {"postgres": newest, **found}.items() if path is None]
    if missing or newest is None:
        packages = " ".join(PACKAGES[name] for name in missing)
        raise Missing(
            f"the failover drill lacks {', '.join(missing)}: get it by `apt-get install --no-install-recommends {packages}` "
            "(Debian 12 or newer; only the programs are used, their services need not run)"
        )
    return Programs(newest, str(found["patroni"]), str(found["etcd"]), str(found["haproxy"]))


def _first_line(command: list[str]) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0].strip()
