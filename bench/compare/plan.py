"""The order, size and duration of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

PAIRS = 9


class Size(NamedTuple):
    jobs: int | None  # none: the scenario's own number
    seconds: float  # of one run, on two cores


SIZES = {
    "drain": Size(50_000, 12),
    "herd": Size(25_000, 20),
    "latency": Size(None, 18),
    "submit": Size(50_000, 31),
}
UNKNOWN = Size(None, 60)


@dataclass(frozen=True, slots=True)
class Step:
    """One run of one tree."""

    scenario: str
    pair: int  # from 1
    tree: Literal["base", "head"]
    jobs: int | None


def steps(scenarios: Sequence[str], pairs: int, jobs: int | None = None) -> list[Step]:
    """One scenario after the other; base head, head base, base head, …: a pair begins with the tree that ended the pair
    before."""
    return [
        Step(scenario, pair, tree, jobs or SIZES.get(scenario, UNKNOWN).jobs)
        for scenario in scenarios
        for pair in range(1, pairs + 1)
        for tree in (("base", "head") if pair % 2 else ("head", "base"))
    ]


def seconds(left: Sequence[Step], seen: dict[str, list[float]] | None = None) -> float:
    """The expected duration of these steps: from the runs so far, else from the machine of `SIZES`."""
    total = 0.0
    for step in left:
        times = (seen or {}).get(step.scenario)
        total += sum(times) / len(times) if times else SIZES.get(step.scenario, UNKNOWN).seconds
    return total
