"""The two trees: the base commit, in a folder of its own, and the working tree."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench import venv
from bench.testbed import ROOT

FOLDER = ROOT / ".cache" / "compare"
MEASURED = ("src", "bench", "pyproject.toml", "constraints.txt")  # a change in one of these means that the working tree changed
Harness = Literal["head", "own"]

_PROBE = """
import sys
from importlib.util import find_spec
import sexton, bench.__main__, bench.app
from bench.scenarios import ALL
unknown = [name for name in sys.argv[1:] if name not in ALL]
if unknown:
    raise ImportError("no scenario " + ", ".join(unknown))
[ALL[name] for name in sys.argv[1:]]
if find_spec("bench.product"):
    from bench import product
    product.embedded_postgres()
print(sexton.__file__)
"""


class CannotCompare(Exception):
    """A tree cannot be measured. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Tree:
    name: Literal["base", "head"]
    commit: str
    root: Path
    python: Path
    change: str = ""  # short hash of the uncommitted changes of the working tree; empty if there are none

    @property
    def is_dirty(self) -> bool:
        return bool(self.change)

    @property
    def short(self) -> str:
        return self.commit[:7]

    def __str__(self) -> str:
        return f"{self.name} {self.short}{' with uncommitted changes' if self.is_dirty else ''}"


def working_tree(python: Path, root: Path = ROOT) -> Tree:
    return Tree("head", _git(root, "rev-parse", "HEAD").strip(), root, python, _change(root))


def build(commit: str, say: Callable[[str], None], root: Path = ROOT, folder: Path = FOLDER) -> Tree:
    """Builds the tree again if an earlier build was interrupted."""
    try:
        sha = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").strip()
    except CannotCompare:
        raise CannotCompare(f"{commit} is not a commit in this repository") from None
    home = folder / sha
    tree, environment, ready = home / "tree", home / "venv", home / "ready"
    if not ready.exists():
        say(f"building {sha[:7]} in {home.relative_to(root) if home.is_relative_to(root) else home}")
        shutil.rmtree(home, ignore_errors=True)
        _materialise(sha, root, tree)
        try:
            venv.make(environment, tree, "--editable", ".[embedded]", "--group", "dev")
        except RuntimeError as error:
            raise CannotCompare(f"the environment of {sha[:7]} cannot be made: {error}") from error
        ready.touch()
    return Tree("base", sha, tree, venv.python_of(environment))


def choose_harness(base: Tree, head: Tree, scenarios: Sequence[str], wanted: Harness | None) -> tuple[Harness, str]:
    """The head's harness for both trees if it imports in the base, else each tree's own. Also returns why it is not the
    head's."""
    _probe(head, head.root, scenarios)
    if wanted != "own":
        try:
            _probe(base, head.root, scenarios)
            return "head", ""
        except CannotCompare as error:
            if wanted == "head":
                raise
            why = str(error)
    else:
        why = "as asked for"
    _probe(base, base.root, scenarios)
    return "own", why


def environment() -> dict[str, str]:
    """The environment of a measuring process, without PYTHONPATH, which could replace one tree's package with the other's."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


def require_unchanged(head: Tree) -> None:
    if (_git(head.root, "rev-parse", "HEAD").strip(), _change(head.root)) != (head.commit, head.change):
        raise CannotCompare(
            "the working tree changed during the measurement; the results are kept, but the comparison starts again"
        )


def _probe(tree: Tree, harness: Path, scenarios: Sequence[str]) -> None:
    """Imports the modules that will be measured, which also compiles them, and checks that they belong to this tree."""
    command = [str(tree.python), "-c", _PROBE, *scenarios]
    done = subprocess.run(command, cwd=harness, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotCompare(f"the harness does not run in the {tree.name}: {done.stderr.strip().splitlines()[-1]}")
    package = Path(done.stdout.strip().splitlines()[-1])
    if not package.is_relative_to(tree.root / "src"):
        raise CannotCompare(f"the {tree.name} would measure {package}, which is not in {tree.root / 'src'}")


def _materialise(sha: str, root: Path, into: Path) -> None:
    into.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "--format=tar", sha], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")


def _change(root: Path) -> str:
    changed = _git(root, "diff", "--binary", "HEAD", "--", *MEASURED)
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *MEASURED).splitlines()
    if not changed and not new:
        return ""
    digest = hashlib.sha256(changed.encode())
    for name in new:
        digest.update(name.encode() + (root / name).read_bytes())
    return digest.hexdigest()[:8]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotCompare(f"git {arguments[0]}: {done.stderr.strip() or f'code {done.returncode}'}")
    return done.stdout
