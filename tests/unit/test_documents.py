"""Pages that repeat what the code says are held to it."""

from __future__ import annotations

import re
from pathlib import Path

from sexton.domain.states import TRANSITIONS
from sexton.settings import Settings

ROOT = Path(__file__).parents[2]


def test_the_transition_table_of_the_lifecycle_page_is_the_one_in_the_domain() -> None:
    page = (ROOT / "docs/lifecycle.md").read_text()
    states = "waiting|ready|running|blocked|parked|-"
    rows = re.findall(rf"^\| (\w+) \| ({states}) \| ({states}) \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((event, source or "-", target or "-") for event, source, target in TRANSITIONS)


def test_every_setting_is_on_the_operations_page() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert [name for name in Settings.model_fields if f"`SEXTON_{name.upper()}`" not in page] == []


def test_every_requirement_is_on_the_map_and_every_test_it_names_exists() -> None:
    page = (ROOT / "docs/requirements.md").read_text()
    named = set(re.findall(r"`(tests/[\w/.]+?)(?:::\w+)?`", page))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    ids = set(re.findall(r"^\| ([A-F]\d+) \|", page, re.MULTILINE))
    assert len(ids) >= 60


def test_the_example_in_the_readme_is_the_one_that_runs() -> None:
    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    program = (ROOT / "examples/invoice.py").read_text()
    assert shown.strip() in program
