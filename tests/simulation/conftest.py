"""Replays one seed alone, and says at the end what the seeds went through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from .ablation import Caught


@pytest.fixture(autouse=True)
def _tells_what_it_caught(record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Caught, "told", staticmethod(record_property))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A single seed is being replayed: what does not depend on it stays out."""
    first, _, last = config.getoption("seeds").partition("-")
    if first == (last or first):
        here = [item for item in items if item.path.parent == Path(__file__).parent]
        others = [item for item in here if "simulation_seed" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reached: Counter[str] = Counter()
    seeds: list[int] = []
    caught: list[str] = []
    for report in terminalreporter.stats.get("passed", []):
        told = dict(getattr(report, "user_properties", [])) if report.when == "call" else {}
        reached.update(told.get("reached", {}))
        if "seed" in told:
            seeds.append(told["seed"])
        if "caught" in told:
            harm, seed = told["caught"]
            caught.append(f"{report.nodeid.rpartition('::')[2]}: {harm} (seed {seed})")
    if seeds:
        states = ", ".join(f"{name} {times:,}" for name, times in sorted(reached.items()) if times)
        terminalreporter.write_line(f"simulation: {len(seeds)} seeds ({min(seeds)} to {max(seeds)}) reached {states}")
    if caught:
        terminalreporter.write_line(f"simulation: {len(caught)} safeguards taken away, each missed")
    if terminalreporter.verbosity > 0:
        for line in sorted(caught):
            terminalreporter.write_line(f"  {line}")
