"""A summary line of all seeds of one session; the tests pass their results as properties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol


class Report(Protocol):
    """The report of one test; a part of pytest's."""

    nodeid: str
    user_properties: list[tuple[str, Any]]

    @property
    def when(self) -> str | None: ...


@dataclass
class Summary:
    seeds: list[int] = field(default_factory=list)
    step_count: int = 0
    violation_count: int = 0
    ablation_count: int = 0  # number of removed safeguards
    caught: list[str] = field(default_factory=list)  # the test, the broken invariant, the seed
    reached: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, reports: Iterable[Report]) -> Summary:
        summary = cls()
        for report in reports:
            if report.when == "call":
                for name, value in report.user_properties:
                    summary._add(report.nodeid.rpartition("::")[2], name, value)
        return summary

    def _add(self, test: str, name: str, value: Any) -> None:
        match name:
            case "seed":
                self.seeds.append(value)
            case "steps":
                self.step_count += value
            case "violation":
                self.violation_count += 1
            case "ablation":
                self.ablation_count += 1
            case "caught":
                harm, seed = value
                self.caught.append(f"{test}: {harm} (seed {seed})")
            case "reached":
                self.reached.update(value)
            case _:
                pass

    def line(self) -> str | None:
        """None if no seed was simulated."""
        parts = []
        if self.seeds:
            parts.append(f"{len(self.seeds)} seeds ({min(self.seeds)} to {max(self.seeds)})")
            parts.append(f"{self.step_count:,} steps, {self.violation_count} violations")
        if self.ablation_count:
            parts.append(f"{len(self.caught)} of {self.ablation_count} ablations caught")
        return f"simulation: {', '.join(parts)}" if parts else None

    def details(self) -> list[str]:
        states = ", ".join(f"{name} {times:,}" for name, times in sorted(self.reached.items()) if times)
        return [*([f"reached {states}"] if states else []), *sorted(self.caught)]
