"""Replays one seed alone, and says at the end what the seeds went through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A single seed is being replayed: what does not depend on it stays out."""
    if config.getoption("seeds").isdecimal():
        here = [item for item in items if item.path.parent == Path(__file__).parent]
        others = [item for item in here if "simulation_seed" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reached: Counter[str] = Counter()
    seed_count = 0
    for report in terminalreporter.stats.get("passed", []):
        for name, seen in getattr(report, "user_properties", []):
            if name == "reached" and report.when == "call":
                reached.update(seen)
                seed_count += 1
    if seed_count:
        told = ", ".join(f"{name} {times:,}" for name, times in sorted(reached.items()))
        terminalreporter.write_line(f"simulation: {seed_count} seeds reached {told}")
