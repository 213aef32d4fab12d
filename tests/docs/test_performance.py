"""docs/performance.md is written from bench/page.md and the figures of a run."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_words_of_the_page_are_those_that_the_next_run_writes() -> None:
    """The next `make bench` would overwrite a text that is only in the page."""
    page = (ROOT / "docs/performance.md").read_text()
    words = (ROOT / "bench/page.md").read_text()
    assert [line for line in words.splitlines() if "<!--" not in line and line not in page] == []
