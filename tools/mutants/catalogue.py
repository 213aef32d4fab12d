"""The hand-written mutants in tests/mutants/*.toml, and the check that each still matches the code."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FOLDER = Path("tests/mutants")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mistake. In `file`, the text `before` becomes `after`; then one of `tests` must fail."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]  # as pytest takes them; the fastest first, because the first failure ends the run
    breaks: str  # what goes wrong for a user
    rule: str | None = None  # the safeguard of docs/rules.md that it removes

    @property
    def digest(self) -> str:
        text = "\0".join([self.name, self.file, self.before, self.after, *self.tests])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Page(msgspec.Struct, forbid_unknown_fields=True):
    mutant: list[Mutant]


def load(root: Path = ROOT) -> list[Mutant]:
    """All files, in the order of their names."""
    pages = sorted((root / FOLDER).glob("*.toml"))
    return [mutant for page in pages for mutant in msgspec.convert(tomllib.loads(page.read_text()), _Page).mutant]


def faults(mutants: Iterable[Mutant], root: Path = ROOT) -> list[str]:
    """What is wrong with the list: a mutant that no longer matches the code would be counted as caught or survived by
    mistake."""
    mutants = list(mutants)
    names = Counter(mutant.name for mutant in mutants)
    found = [f"{name}: the name is used {count} times" for name, count in names.items() if count > 1]
    return found + [f"{mutant.name}: {fault}" for mutant in mutants for fault in _faults_of(mutant, root)]


def _faults_of(mutant: Mutant, root: Path) -> list[str]:
    found = []
    if not _NAME.fullmatch(mutant.name):
        found.append("a name has lower-case words, joined by -")
    if mutant.before == mutant.after:
        found.append("it changes nothing")
    if not mutant.tests:
        found.append("it names no test")
    text = _text(root / mutant.file)
    if text is None:
        found.append(f"there is no file {mutant.file}")
    elif (count := text.count(mutant.before)) != 1:
        found.append(f"the text to replace is {count} times in {mutant.file}; it must be there exactly once")
    found += [
        f"{test} takes a safeguard away itself, and fails where it is gone" for test in mutant.tests if "ablation" in test
    ]
    return found + [f"there is no test {test}" for test in mutant.tests if not _exists(test, root)]


def _exists(test: str, root: Path) -> bool:
    path, _, name = test.partition("::")
    text = _text(root / path)
    if text is None:
        return (root / path).is_dir()
    function = name.partition("[")[0].rpartition("::")[2]
    return not name or re.search(rf"^ *(?:async )?def {re.escape(function)}\(", text, re.MULTILINE) is not None


@cache
def _text(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None
