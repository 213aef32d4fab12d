"""Automatic mutants: operators, constants and clauses, drawn by a seed from all that are possible in the core.

They find what the hand-written list misses. TESTS_OF_FILES says which tests must catch a mutant of a file."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from .catalogue import FOLDER, ROOT, Mutant

SOURCE = Path("src/sexton")
CORE = (
    "domain/*.py",
    "domain/schedule/*.py",
    "operations/*.py",
    "operations/recurring/*.py",
    "operations/remote/*.py",
    "scheduler/*.py",
    "worker/*.py",
    "worker/batch/*.py",
    "worker/quarantine/*.py",
    "worker/stall/*.py",
    "dispatch/*.py",
)
CORE_SQL = ("store/functions/*.sql", "store/work/*.sql", "store/fleet/*.sql", "store/sharing/*.sql")
TESTS_OF_FILES = FOLDER / "generated/tests_of_files.toml"


class _Change(NamedTuple):
    what: str
    pattern: re.Pattern[str]
    after: str


_BOTH = (
    _Change("less or equal", re.compile(r" <= "), " < "),
    _Change("more or equal", re.compile(r" >= "), " > "),
    _Change("less", re.compile(r" < "), " <= "),
    _Change("more", re.compile(r" > "), " >= "),
    _Change("plus", re.compile(r" \+ "), " - "),
    _Change("one more", re.compile(r"(?<= )1(?=[ ,);\n])"), "2"),
)
_PYTHON = (
    _Change("and", re.compile(r" and "), " or "),
    _Change("or", re.compile(r" or "), " and "),
    _Change("not", re.compile(r"(?<=if )not "), ""),
    _Change("equal", re.compile(r" == "), " != "),
    _Change("none", re.compile(r" is not None"), " is None"),
    _Change("min", re.compile(r"\bmin\("), "max("),
    _Change("awaited call", re.compile(r"^( +)await [\w.]+\(.*\)\n", re.MULTILINE), r"\1pass\n"),
)
_END_OF_CONDITION = r"(?= AND | OR | ORDER | LIMIT | FOR | OFFSET | GROUP | THEN |[\n;)])"
_SQL = (
    _Change("condition", re.compile(rf" AND [\w.]+ (?:=|<>|<=|>=|<|>|IS NOT|IS) (?!ANY\b)[\w.$:']+{_END_OF_CONDITION}"), ""),
    _Change("or", re.compile(r" OR (?!REPLACE )"), " AND "),
    _Change("skip locked", re.compile(r" SKIP LOCKED"), ""),
    _Change("lock", re.compile(r" FOR UPDATE(?= SKIP LOCKED| OF|;|\n|\))[^;)\n-]*"), ""),
    _Change("equal", re.compile(r"\b(AND|WHERE|ON|WHEN) ([\w.]+) = (?=[\w(])"), r"\1 \2 <> "),
    _Change("greatest", re.compile(r"\bgreatest\("), "least("),
    _Change("coalesce", re.compile(r"\bcoalesce\(([\w.]+), "), r"coalesce(NULL, "),
    _Change("descending", re.compile(r" DESC\b"), ""),
)


def draw(seed: int, count: int, root: Path = ROOT) -> list[Mutant]:
    """Draws this number of mutants, each at another place. If a text is not unique, it includes the lines around it."""
    made = _all(root)
    return Random(seed).sample(made, min(count, len(made)))


@cache
def _all(root: Path) -> list[Mutant]:
    return list(_made(root))


def _made(root: Path) -> Iterator[Mutant]:
    source = root / SOURCE
    for patterns, changes in ((CORE, (*_BOTH, *_PYTHON)), (CORE_SQL, (*_BOTH, *_SQL))):
        for path in sorted(file for pattern in patterns for file in source.glob(pattern)):
            text = path.read_text()
            prose = _texts(path, text)
            for change in changes:
                for number, found in enumerate(change.pattern.finditer(text)):
                    is_prose = any(start <= found.start() < end for start, end in prose)
                    if not is_prose and (mutant := _mutant(root, path, text, change, found, number)):
                        yield mutant


def _mutant(root: Path, path: Path, text: str, change: _Change, found: re.Match[str], number: int) -> Mutant | None:
    """`None` if even the lines around it do not make it unique."""
    start, end = found.span()
    for around in range(3):
        low, high = _lines(text, start, end, around)
        if text.count(text[low:high]) == 1:
            after = text[low:start] + found.expand(change.after) + text[end:high]
            name = re.sub(r"[_ ]", "-", f"{path.parent.name}-{path.stem}-{change.what}-{number}".strip("_")).replace("--", "-")
            tests = named_tests(path.relative_to(root / SOURCE).as_posix(), root)
            line = text.count("\n", 0, start) + 1
            return Mutant(name, str(path.relative_to(root)), text[low:high], after, tests, f"{change.what}, line {line}")
    return None


def _lines(text: str, start: int, end: int, around: int) -> tuple[int, int]:
    low, high = start, end
    for _ in range(around + 1):
        low = text.rfind("\n", 0, max(low - 1, 0)) + 1
        high = text.find("\n", high) + 1 or len(text)
    return low, high


def named_tests(name: str, root: Path = ROOT) -> tuple[str, ...]:
    """The tests that must catch a mutant of this file of src/sexton."""
    tests = next((tests for pattern, tests in mapped(root).items() if fnmatchcase(name, pattern)), [])
    return tuple(f"tests/{test}" for test in tests)


@cache
def mapped(root: Path = ROOT) -> dict[str, list[str]]:
    """The patterns of TESTS_OF_FILES in their order; its sections are only headings."""
    sections = tomllib.loads((root / TESTS_OF_FILES).read_text()).values()
    return {pattern: tests for section in sections for pattern, tests in section.items()}


def core(root: Path = ROOT) -> list[Path]:
    """The files that mutants are drawn from."""
    return sorted(file for pattern in (*CORE, *CORE_SQL) for file in (root / SOURCE).glob(pattern))


def _texts(path: Path, text: str) -> list[tuple[int, int]]:
    """Where comments and texts are: a word there is no operator."""
    if path.suffix == ".sql":
        return [found.span() for found in re.finditer(r"--.*", text)]
    found = [found.span() for found in re.finditer(r"(?m)^ *#.*|  # .*", text)]
    starts = list(accumulate((len(line.encode()) for line in text.splitlines(keepends=True)), initial=0))
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if is_text and isinstance(node, ast.expr) and node.end_lineno is not None and node.end_col_offset is not None:
            places = (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
            found.append(tuple(len(text.encode()[:place].decode()) for place in places))  # type: ignore[arg-type]
    return found
