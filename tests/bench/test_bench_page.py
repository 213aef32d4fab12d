"""The page about performance contains what the benchmarks wrote, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import page, plot, profile

OUTCOME: dict[str, Any] = {
    "scenario": "drain",
    "jobs_per_s": 17_321.0,
    "wal_bytes_per_job": 1_250.0,
    "targets": {"jobs_per_s": {"must": 15_000, "goal": 20_000}},
    "series": {},
    "steal_pct": 0.2,
    "elsewhere_pct": 3.0,
    "measured_at": "2026-03-04T12:00:00+00:00",
    "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "kernel": "Linux", "python": "CPython 3.11"},
    "postgres": {"version": "18.4", "settings": {"fsync": "on", "synchronous_commit": "on"}},
}
SIZES = {**OUTCOME, "scenario": "sizes", "targets": {}, "series": {"jobs_per_s_over_slots": [[1, 400], [100, 20_000]]}}
FAILED = {"scenario": "bloat", "failed": "no disk"}


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "figures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (OUTCOME, SIZES, FAILED)))
    return tmp_path / "docs"


def test_the_page_says_what_was_reached_and_what_was_not(docs: Path) -> None:
    page.main(docs.parent)
    text = (docs / "performance.md").read_text()
    assert "| `drain` | `jobs_per_s` | 17,321 | 15,000 | 20,000 | must | 0 / 3 % |" in text
    assert "| bloat |  | failed |  |  | no |  |" in text
    assert "PostgreSQL 18.4" in text
    assert "<!--" not in text, "a place that nothing was written to"


def test_a_knob_is_shown_beside_its_default(docs: Path) -> None:
    turn = {"knob": "`commit_delay`", "setting": "1 ms", "rate": 0.914, "cpu": 1.0, "wal": None}
    (docs.parent / "knobs.jsonl").write_text(json.dumps(turn) + "\n")
    page.main(docs.parent)
    assert "| `commit_delay` | 1 ms | 0.91 | 1.00 |  |" in (docs / "performance.md").read_text()


def test_a_series_becomes_a_picture(docs: Path) -> None:
    page.main(docs.parent)
    assert [picture.name for picture in (docs / "performance").iterdir()] == ["slots.svg"]
    drawn = ElementTree.fromstring((docs / "performance" / "slots.svg").read_text())  # our own output, so it is safe to parse
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 1


def test_a_flame_is_as_wide_as_its_share(tmp_path: Path) -> None:
    (tmp_path / "stacks.txt").write_text(
        "main (x.py:1);Runner.run (r.py:2);a (a.py:3);b (a.py:4) 75\nRunner.run (r.py:2);a (a.py:9);c (a.py:5) 25\n"
    )
    drawn = ElementTree.fromstring(plot.flames("where", profile.read(tmp_path / "stacks.txt")))
    svg = "{http://www.w3.org/2000/svg}"
    shares = [told.text for group in drawn.iter(f"{svg}g") if (told := group.find(f"{svg}title")) is not None]
    assert shares == ["a: 100.0%", "b: 75.0%", "c: 25.0%"]
