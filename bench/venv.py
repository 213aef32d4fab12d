"""Virtual environments that the benchmarks make for themselves, by uv: for the peers, and for another commit of Sexton."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MIRRORS = (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("UV_FIND_LINKS", "PIP_FIND_LINKS"))


def make(folder: Path, root: Path, *what: str) -> None:
    """Installs what is named, as files of `root`, with the constraints of `root`."""
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder), cwd=root)
    run(
        *uv, "pip", "install", "--quiet", "--python", str(python_of(folder)), "--constraints", "constraints.txt", *what,
        cwd=root,
    )  # fmt: skip


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def run(*command: str, cwd: Path) -> str:
    """Answers with what it printed; the error has the last line of its complaint."""
    environment = dict(os.environ)
    for ours, theirs in MIRRORS:
        if environment.get(theirs):  # a mirror that pip knows serves uv as well
            environment.setdefault(ours, environment[theirs])
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"code {done.returncode}").splitlines()[-1])
    return done.stdout
