"""Every snippet of the README, the tutorial and the how-to pages runs and has the output that the page shows (A1, A5, A8, A9,
E6)."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from .snippets import LANGUAGES, ROOT, Page, matched

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
HOW_TO = [ROOT / "docs" / "tasks.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
ID, OTHER = "01a1defe-decc-7ef1-ad61-15aeb3fcc389", "01a1deff-1a11-7c0c-84f4-a2d648fb8246"
FALSE = [
    "```console\n$ echo 1 2\n1 3\n```\n",
    "```console\n$ echo one; echo two\none\n```\n",
    "```console\n$ sexton submit\nsexton: all is well\n```\n",
    "```python\nassert 1 == 2\n```\n",
    "```sql\nSELECT sexton.submit(1, 2, 3);\n```\n",
]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Of an embedded server that ends with the test."""
    folder = Path(tempfile.mkdtemp(prefix="sexton-test-pages-"))
    yield folder
    for process in psutil.process_iter():
        try:
            if str(folder) in process.cmdline():
                process.kill()
        except psutil.Error:
            pass
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(180)
def test_the_tutorial_can_be_followed_word_by_word(tmp_path: Path, data_dir: Path) -> None:
    page = Page(TUTORIAL, tmp_path, {"SEXTON_DATA_DIR": str(data_dir)})
    try:
        assert page.follow() >= 20
    finally:
        page.close()


@pytest.mark.parametrize("path", [README, *HOW_TO], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_snippet_of_a_page_runs(path: Path, tmp_path: Path, database_url: str) -> None:
    page = Page(path, tmp_path, {"SEXTON_DATABASE_URL": database_url}, database_url)
    try:
        page.follow()
    finally:
        page.close()


@pytest.mark.parametrize("path", [README, TUTORIAL, *HOW_TO], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_snippet_is_run_or_says_why_not(path: Path) -> None:
    fences = re.findall(r"(?:^<!-- not run: ([^\n]+) -->\n+)?^```(\w*)\n.*?^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    assert [language for why, language in fences if not why and language not in LANGUAGES] == []


def test_a_page_that_is_not_true_is_found_out(tmp_path: Path, database_url: str) -> None:
    path = tmp_path / "page.md"
    for block in FALSE:
        path.write_text(f"# A page\n{block}")
        page = Page(path, tmp_path, {"SEXTON_DATABASE_URL": database_url}, database_url)
        with pytest.raises(AssertionError, match=r"page.md, line 2"):
            page.follow()
        page.close()


def test_what_varies_may_differ_and_is_remembered() -> None:
    met: dict[str, str] = {}
    shown = [f"{ID}  live  0.7 s  laptop:4711  2026-11-15 11:36:53Z", "…", '{"id":"x",…}']
    printed = [f"{OTHER} live 12.25 s  vm-1:99  2027-01-01 00:00:01Z", "and more", '{"id":"x","status":"pending"}']
    assert matched(shown, printed, met) is None
    assert (met[ID], met["4711"]) == (OTHER, "99")
    assert matched(shown, [*printed, "something else"], met) is not None
    assert matched(["done in 2 s"], ["done in 3 s"], met) == "done in 2 s"
