"""Replays a single seed, and prints a summary of all seeds at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .ablation import Caught
from .summary import Summary


@pytest.fixture(autouse=True)
def _tells_what_it_caught(
    record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(Caught, "told", staticmethod(record_property))
    monkeypatch.setattr(Caught, "has_pinned_seeds", not pytestconfig.getoption("nightly"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A single seed is replayed: tests that do not depend on it are skipped."""
    first, _, last = config.getoption("seeds").partition("-")
    if first == (last or first):
        here = [item for item in items if item.path.parent == Path(__file__).parent]
        others = [item for item in here if "simulation_seed" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    summary = Summary.of([report for report in reports if isinstance(report, pytest.TestReport)])
    if terminalreporter.verbosity > 0:
        for detail in summary.details():
            terminalreporter.write_line(f"  {detail}")
    if (line := summary.line()) is not None:
        terminalreporter.write_line(line)
