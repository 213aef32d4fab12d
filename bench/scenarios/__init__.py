"""One module per scenario of docs/performance.md. A module is imported when its scenario is used: see `bench.product`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from bench.scenario import Scenario

# In the order in which `all` measures them: scenarios that take minutes come last.
NAMES = (
    "drain",
    "herd",
    "submit",
    "latency",
    "timer",
    "recovery",
    "takeover",
    "poison",
    "neighbours",
    "idle",
    "scale",
    "limits",
    "http",
    "tenants",
    "sizes",
    "lists",
    "steady",
    "recurring",
    "bloat",
    "depth",
    "memory",
)


class _Scenarios(Mapping[str, Scenario]):
    def __getitem__(self, name: str) -> Scenario:
        if name not in NAMES:
            raise KeyError(name)
        scenario: Scenario = import_module(f"{__name__}.{name}").SCENARIO
        return scenario

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


ALL: Mapping[str, Scenario] = _Scenarios()
