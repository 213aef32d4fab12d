"""Which functions, statements and triggers call a SQL function, from the files themselves."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import sexton

SOURCE = Path(sexton.__file__).parent
FUNCTIONS = SOURCE / "store/functions"
FOR_USERS = ("submit", "submit_schedule")
_HEAD = re.compile(r"CREATE OR REPLACE FUNCTION sexton\.(\w+)\(")
_MESSAGES = re.compile(r"(?:HINT = )'(?:[^']|'')*'|'(?:(?!sexton\.)[^']|'')*'")  # statements in a text name the schema


def header_of(path: Path) -> str:
    """In one line, without the marks of a comment."""
    lines = path.read_text().partition("CREATE OR REPLACE FUNCTION")[0].splitlines()
    return " ".join(line.removeprefix("--").strip() for line in lines)


def named_in(header: str) -> list[str]:
    said = re.search(r"Called by: (.+?)\. Locks: ", header)
    return said[1].split(", ") if said else []


def callers_of(path: Path) -> list[str]:
    """Functions by name, then files from the package on, each in order; `users`, `triggers`, `the baseline` or `no code`."""
    name, arity = _signature(path)
    bodies = {other: text for other, text in _bodies().items() if other != path.stem}
    by_function = sorted(other for other, text in bodies.items() if _calls(text, name, arity, qualified=False))
    by_file = sorted(file for file, text in _statements().items() if _calls(text, name, arity))
    beside = ["users"] if name in FOR_USERS else []
    migrations = [re.sub("--.*", "", file.read_text()) for file in sorted((SOURCE / "store/migrations").rglob("*.sql"))]
    if any(re.search(rf"EXECUTE FUNCTION sexton\.{name}\(", text) for text in migrations):
        beside.append("triggers")
    elif any(_calls(re.sub(r"ON FUNCTION sexton\.\w+\(", "", text), name, arity) for text in migrations):
        beside.append("the baseline")
    return [*by_function, *by_file, *beside] or ["no code"]


def _calls(text: str, name: str, arity: int | None, *, qualified: bool = True) -> bool:
    """An overload is told by the number of its arguments."""
    called = re.finditer(rf"\bsexton\.{name}\(" if qualified else rf"(?<![\w.])(?:sexton\.)?{name}\(", text)
    return any(arity is None or _arguments(text, one.end()) == arity for one in called)


def _signature(path: Path) -> tuple[str, int | None]:
    text = path.read_text()
    head = _HEAD.search(text)
    assert head is not None, path
    return head[1], _arguments(text, head.end()) if head[1] in _overloaded() else None


def _arguments(text: str, start: int) -> int:
    depth, commas = 1, 0
    for at, letter in enumerate(text[start:], start):
        depth += (letter in "([") - (letter in ")]")
        commas += letter == "," and depth == 1
        if depth == 0:
            return commas + bool(text[start:at].strip())
    raise ValueError("a parenthesis is not closed")


@cache
def _overloaded() -> frozenset[str]:
    names = Counter(_HEAD.findall("".join(path.read_text() for path in FUNCTIONS.glob("*.sql"))))
    return frozenset(name for name, count in names.items() if count > 1)


@cache
def _bodies() -> dict[str, str]:
    """By file name, without comments, messages and the name of the function itself."""
    texts = {path.stem: path.read_text().partition("CREATE OR REPLACE FUNCTION sexton.")[2] for path in FUNCTIONS.glob("*.sql")}
    return {name: _MESSAGES.sub("", re.sub("--.*", "", text.partition("(")[2])) for name, text in texts.items()}


@cache
def _statements() -> dict[str, str]:
    left_out = (FUNCTIONS, SOURCE / "store/migrations")
    files = [one for one in SOURCE.rglob("*") if one.suffix in (".sql", ".py") and not set(left_out) & set(one.parents)]
    texts = {one.relative_to(SOURCE).as_posix(): one.read_text() for one in files if one.name != "schema.sql"}
    return {name: _code_of(name, text) for name, text in texts.items()}


def _code_of(name: str, text: str) -> str:
    """Without comments and docstrings: what they mention is not called."""
    return re.sub("--.*", "", text) if name.endswith(".sql") else re.sub(r'"""(?s:.*?)"""|#.*', "", text)
