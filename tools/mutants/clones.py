"""Copies of the working tree in .cache/mutants. A mutant is applied to a copy, never to the tree itself."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from . import witness
from .catalogue import FOLDER, ROOT, Mutant

CACHE = Path(".cache/mutants")
LIMIT_S = 900.0  # for the tests of one mutant; each test has its own, shorter limit
_TESTED = ("src/", "tests/", "tools/", "bench/", "chaos/", "examples/", "pyproject.toml", "constraints.txt")

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["pytest", "hypothesis", "asyncpg", "psycopg", "psutil", "sqlalchemy.ext.asyncio", "httpx", "aiohttp", "litestar", "grpc"]
)

Outcome = Literal["caught", "survived", "no verdict"]


class Verdict(msgspec.Struct, frozen=True):
    name: str
    digest: str  # of the mutant
    code: str  # of the code it was applied to
    outcome: Outcome
    by: str  # the test that failed
    took_s: float
    error: str = ""


class Clone:
    def __init__(self, number: int, root: Path = ROOT) -> None:
        self._root = root
        self.path = root / CACHE / f"clone-{number}"

    def refresh(self, files: Sequence[str]) -> None:
        """Copies the working tree, including uncommitted changes."""
        shutil.rmtree(self.path, ignore_errors=True)
        for name in files:
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self._root / name, target, follow_symlinks=False)

    def judge(self, mutant: Mutant, code: str) -> Verdict:
        began_s = time.monotonic()
        with self._applied(mutant):
            testimony = self.run(mutant.tests, "-x")
        outcome, by, error = _judged(testimony)
        return Verdict(mutant.name, mutant.digest, code, outcome, by, round(time.monotonic() - began_s, 1), error)

    def run(self, tests: Sequence[str], *options: str, limit_s: float = LIMIT_S) -> witness.Testimony | None:
        """Runs these tests in the clone. Returns `None` if pytest did not finish."""
        heard = self.path.with_suffix(".json")
        heard.unlink(missing_ok=True)
        arguments = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", witness.__name__]
        arguments += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        process = _FORKS.Process(target=_run_pytest, args=(self.path, [*arguments, *options, *tests]), daemon=False)
        process.start()
        try:
            process.join(limit_s)
        finally:
            if process.is_alive():
                os.killpg(process.pid or 0, signal.SIGKILL)
                process.join()
        return msgspec.json.decode(heard.read_bytes(), type=witness.Testimony) if heard.exists() else None

    @contextmanager
    def _applied(self, mutant: Mutant) -> Iterator[None]:
        file = self.path / mutant.file
        text = file.read_text()
        try:
            _write(file, text.replace(mutant.before, mutant.after, 1))
            yield
        finally:
            _write(file, text)


def _run_pytest(path: Path, arguments: list[str]) -> None:
    """In a process forked from one that has imported everything but Sexton: these imports are most of the time of a test."""
    os.setsid()
    with path.with_suffix(".log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(path)
    sys.dont_write_bytecode = False  # compiled once for all mutants of this clone; see `_write`
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    places = [str(path / "src"), str(path)]
    sys.path[:0] = places
    os.environ |= {"PYTHONPATH": os.pathsep.join(places), witness.PATH: str(path.with_suffix(".json"))}
    sys.exit(pytest.main(arguments))


def files_of(root: Path = ROOT) -> list[str]:
    """Every file of the tree that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


class Code:
    """Digests of what a verdict depends on: all files except the list of mutants, and of the tests only the named ones."""

    def __init__(self, files: Sequence[str], root: Path = ROOT) -> None:
        read = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in files if name.startswith(_TESTED)}
        self._tests = {name: digest for name, digest in read.items() if Path(name).name.startswith("test_")}
        others = [
            (name, read[name]) for name in sorted(read.keys() - self._tests) if not name.startswith((f"{FOLDER}/", "tools/"))
        ]
        self._others = hashlib.sha256(repr(others).encode()).hexdigest()

    def of(self, tests: Sequence[str]) -> str:
        paths = sorted({test.partition("::")[0] for test in tests})
        named = [(path, self._tests.get(path, "")) for path in paths]
        return hashlib.sha256(repr([self._others, named]).encode()).hexdigest()[:16]


def _judged(testimony: witness.Testimony | None) -> tuple[Outcome, str, str]:
    """A mutant that does not even start was not caught by a test: its text is wrong."""
    if testimony is None:
        return "no verdict", "", f"pytest did not end within {LIMIT_S:.0f} s, or did not start"
    if testimony.failed:
        is_of_the_test = testimony.when in ("call", "teardown")
        return "caught" if is_of_the_test else "no verdict", testimony.failed[0], f"{testimony.when}: {testimony.error}"
    return ("survived", "", "") if testimony.passed_count else ("no verdict", "", "no test ran")


def _write(file: Path, text: str) -> None:
    """Python compares modification times in whole seconds, so the compiled file is deleted too."""
    file.write_text(text)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()
