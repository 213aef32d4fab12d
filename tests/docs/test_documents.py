"""Pages that repeat what the code says agree with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from sexton.cli.exit_codes import Exit
from sexton.domain.states import TRANSITIONS
from sexton.settings import Settings
from sexton.telemetry import events, logs
from tools import job_options, reference

ROOT = Path(__file__).parents[2]
FUNCTIONS = ROOT / "src/sexton/store/functions"


def test_the_transition_table_of_the_lifecycle_page_is_the_one_in_the_domain() -> None:
    page = (ROOT / "docs/lifecycle.md").read_text()
    states = "waiting|ready|running|paused|blocked|parked|quarantined|-"
    rows = re.findall(rf"^\| (\w+) \| ({states}) \| ({states}) \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((event, source or "-", target or "-") for event, source, target in TRANSITIONS)


@pytest.mark.parametrize("name", ["api.md", "cli.md", "errors.md", "job-options.md", "settings.md"])
def test_the_reference_is_what_the_code_says(name: str) -> None:
    """E6, F2. `make docs` writes them."""
    assert (ROOT / "docs/reference" / name).read_text() == reference.pages()[name], "run: make docs"


@pytest.mark.parametrize("name", ["wire/job_options.py", "client/job_options.py", "client/calls.py"])
def test_a_module_that_follows_from_the_table_of_options_is_what_the_table_says(name: str) -> None:
    assert (ROOT / "src/sexton" / name).read_text() == job_options.modules()[name], "run: make docs"


def test_every_setting_and_every_exit_code_is_explained() -> None:
    """The page shows the comment beside the field."""
    rows = re.findall(r"^\| `(\S+)` \|.*\| *(.*?) \|$", reference.settings_page(), re.MULTILINE)
    assert len(rows) == len(Settings.model_fields)
    assert [name for name, means in rows if not means] == []
    cells = re.findall(r"^\| (\d+) \| `\w+` \| (.+) \|$", reference.cli_page(), re.MULTILINE)
    assert [int(code) for code, _ in cells] == [int(code) for code in Exit]


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        place, _, anchor = link.partition("#")
        if place.startswith("http") or ("/store/functions/" in place and not FUNCTIONS.exists()):
            continue
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def anchors(path: Path) -> set[str]:
    return {reference.anchor(title.replace("`", "")) for title in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)}


def test_every_requirement_is_on_the_map_and_every_test_it_names_exists() -> None:
    page = (ROOT / "docs/requirements.md").read_text()
    named = set(re.findall(r"`(tests/[\w/.]+?)(?:::\w+)?`", page))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    ids = set(re.findall(r"^\| ([A-F]\d+) \|", page, re.MULTILINE))
    assert len(ids) >= 60
    assert ids == set(re.findall(r"^- \*\*([A-F]\d+)\*\* \S", page, re.MULTILINE)), (
        "a row or a text of a requirement is missing"
    )


def test_the_page_of_operations_has_every_log_line_and_no_other() -> None:
    page = (ROOT / "docs/operations.md").read_text().partition("\n## Log lines\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| `([a-z ]+)` \|", page, re.MULTILINE)
    assert sorted(lines) == sorted(logs.name_of(kind) for kind in get_args(events.Event))


def test_the_example_in_the_readme_is_the_one_that_runs() -> None:
    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    program = (ROOT / "examples/invoice.py").read_text()
    assert shown.strip() in program
