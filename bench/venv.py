"""Virtual environments made by uv: for the peers, for another commit of Sexton, and for another Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MIRRORS = (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("UV_FIND_LINKS", "PIP_FIND_LINKS"))


def make(folder: Path, root: Path, *what: str, python: str = sys.executable) -> None:
    """Installs these requirements, with the files and constraints of `root`."""
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--allow-existing", "--python", python, str(folder), cwd=root)
    run(
        *uv, "pip", "install", "--quiet", "--python", str(python_of(folder)), "--constraints", "constraints.txt", *what,
        cwd=root,
    )  # fmt: skip


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def run(*command: str, cwd: Path) -> str:
    """Returns its output; the error has the last line of its stderr."""
    environment = dict(os.environ)
    for ours, theirs in MIRRORS:
        if environment.get(theirs):  # so that uv uses the same mirror as pip
            environment.setdefault(ours, environment[theirs])
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"code {done.returncode}").splitlines()[-1])
    return done.stdout
