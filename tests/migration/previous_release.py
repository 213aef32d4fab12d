"""Installs the previous release in a folder and a virtual environment of its own.

`tests/migration/previous` contains its commit. After a release that changed tables or functions, set it to that release; until
then every test here compares the working tree with the same release."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "previous"
COMMIT_FILE = Path(__file__).with_name("previous")
MISSING = "The previous release is missing"  # tests/conftest.py says how to get it


class Release(NamedTuple):
    commit: str
    source: Path  # the whole source tree
    python: Path  # imports its `sexton` from any working folder


class ReleaseMissing(Exception):
    """This clone does not have the commit, or git is not installed."""


def previous_commit() -> str:
    return COMMIT_FILE.read_text().strip()


def install(commit: str | None = None) -> Release:
    """Takes seconds if uv has the packages in its cache, and no time on the second call. Safe for many processes at once."""
    commit = commit or previous_commit()
    folder = CACHE / commit
    release = Release(commit, folder / "source", folder / "venv" / "bin" / "python")
    installed = folder / "installed"
    with _lock(commit):
        if not (installed.exists() and release.python.exists()):
            shutil.rmtree(folder, ignore_errors=True)  # remains of a killed run
            release.source.mkdir(parents=True)
            _unpack(commit, release.source)
            _make_environment(release)
            installed.touch()
    return release


@contextmanager
def _lock(commit: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{commit}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(commit: str, target: Path) -> None:
    try:
        archive = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseMissing(f"{MISSING}: cannot read commit {commit} with git") from error
    subprocess.run(["tar", "-xf", "-", "-C", target], input=archive.stdout, check=True)


def _make_environment(release: Release) -> None:
    venv, constraints = release.python.parents[1], release.source / "constraints.txt"
    _uv("venv", "--python", sys.executable, venv)
    _uv("pip", "install", "--python", release.python, "--constraints", constraints, f"{release.source}[embedded]")


def _uv(*arguments: str | Path) -> None:
    # so that uv uses the same mirror as pip
    mirror = {"UV_DEFAULT_INDEX": "PIP_INDEX_URL", "UV_FIND_LINKS": "PIP_FIND_LINKS"}
    known = {ours: os.environ[theirs] for ours, theirs in mirror.items() if os.environ.get(theirs)}
    done = subprocess.run(
        [sys.executable, "-m", "uv", "--quiet", *arguments], env={**known, **os.environ}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"cannot install the previous release: uv {arguments[0]} said\n{done.stderr}")
