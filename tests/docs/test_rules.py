"""docs/rules.md names every safeguard. Its links work, code and tests cite its names, and no file of the repository refers to a
rule by number or to a page outside of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/rules.md"
FUNCTIONS = ROOT / "src/sexton/store/functions"
FOLDERS = ("src", "tests", "bench", "chaos", "tools", "docs", "examples", ".ci")
TEXTS = {".md", ".mjs", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml", ""}
CITED = re.compile(r'\brules?\s+("[^"\n]+"(?:(?:,| and| to) "[^"\n]+")*)', re.IGNORECASE)
BROKEN = re.compile(r'\brules? "[^"\n]*$|\brules?\n *(?:#|--) *"', re.IGNORECASE | re.MULTILINE)
OUTSIDE = re.compile(r"\b[Rr]ules? \d+\b|\bDESIGN\b|\bREQUIREMENTS\b|\bshared/|\bissue \d+\b")


def texts(*folders: str) -> Iterator[tuple[str, str]]:
    """Path and text of every file written by people, except this one, which has to contain what it forbids."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    if "src" in folders:
        files = [path for path in files if FUNCTIONS.exists() or path.parent.name != "migrations"]
    for path in sorted(files):
        if path.is_file() and path.suffix in TEXTS and "__pycache__" not in path.parts and path != Path(__file__):
            yield str(path.relative_to(ROOT)), path.read_text()


def sections() -> dict[str, str]:
    _, *parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


RULES = sections()


def links(text: str, title: str) -> dict[str, list[str]]:
    """Of the list under a section's title: the path of each link, and the names that the file must contain."""
    _, _, below = text.partition(f"**{title}**\n")
    found = re.findall(r"^- \[[^]]+\]\(\.\./([^)]+)\): (.+)$", below.split("\n\n")[0], re.MULTILINE)
    return {path: re.findall(r"`([^`]+)`", names) for path, names in found}


def defines(text: str, name: str) -> bool:
    """A function, class or constant of Python, or a statement or function of SQL."""
    return bool(
        re.search(rf"(?:\bdef|\bclass|^-- name:|FUNCTION sexton\.) *{name}\b|^{name}(?:: [^=\n]+)? = ", text, re.MULTILINE)
    )


def cited_in(text: str) -> list[str]:
    return [name for names in CITED.findall(text) for name in re.findall(r'"([^"]+)"', names)]


def test_the_contents_list_every_rule_in_order() -> None:
    contents, _, _ = PAGE.read_text().partition("\n## ")
    assert re.findall(r"^- \[([^]]+)\]\(#[\w-]+\): \S", contents, re.MULTILINE) == list(RULES)
    assert len(RULES) >= 21


@pytest.mark.parametrize("name", RULES)
def test_a_rule_tells_its_interleaving_and_links_to_code_and_tests_that_exist(name: str) -> None:
    text = RULES[name]
    assert "**Interleaving.** " in text
    assert "**Rule.** " in text
    code, tests = links(text, "Code"), links(text, "Tests")
    assert code
    assert tests
    wrong = []
    for path, names in [*code.items(), *tests.items()]:
        file = ROOT / path
        if file.parent == FUNCTIONS and not FUNCTIONS.exists():
            continue
        known = file.read_text() if file.exists() else ""
        wrong += [f"{path}: {one}" for one in names if not defines(known, one)] or ([] if names else [path])
    assert wrong == []


def test_every_rule_that_is_cited_exists() -> None:
    cited = [(path, name) for path, text in texts(*FOLDERS) for name in cited_in(text)]
    assert len(cited) > 200
    assert [(path, name) for path, name in cited if name not in RULES] == []


def test_a_name_is_on_one_line() -> None:
    """In full, so that a search for it finds every place."""
    assert [path for path, text in texts(*FOLDERS) if BROKEN.search(text)] == []


def test_every_rule_is_cited_where_the_code_keeps_it() -> None:
    cited = {name for _, text in texts("src") for name in cited_in(text)}
    assert set(RULES) - cited == set()


def test_nothing_refers_to_a_number_or_to_a_page_outside_of_the_repository() -> None:
    at_the_top = [(path.name, path.read_text()) for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXTS]
    found = [f"{path}: {hit}" for path, text in [*texts(*FOLDERS), *at_the_top] for hit in OUTSIDE.findall(text)]
    assert found == []
