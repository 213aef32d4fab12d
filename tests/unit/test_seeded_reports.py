"""The summary lines of chaos and the simulation, with which a run and its seed can be quoted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chaos import report
from tests.simulation.summary import Summary

FACTS: dict[str, Any] = {
    "seed": 7,
    "seconds": 600.0,
    "is_sound": True,
    "figures": {
        "submitted": 70_343, "lost": 0, "leased_twice": 0, "unexplained": 0, "recovery": {"median_s": 2.14, "max_s": 9.6},
    },
    "charge_counts": {"lost": 0, "not drained": 0, "leased twice": 0, "unexplained": 0},
    "faults": [{}] * 37,
}  # fmt: skip


@dataclass
class Told:
    """A report of pytest."""

    nodeid: str
    user_properties: list[tuple[str, Any]]
    when: str | None = field(default="call")


def test_the_summary_of_chaos_is_one_line() -> None:
    assert report.line(FACTS) == (
        "chaos: seed 7, 600 s, sound: 70,343 submitted, 0 lost, 0 double leases, 0 unexplained; "
        "37 faults, recovery median 2.1 s, longest 9.6 s"
    )


def test_the_summary_of_chaos_names_every_other_charge() -> None:
    figures = {**FACTS["figures"], "lost": 2, "recovery": {"median_s": None, "max_s": None}}
    charged = {"lost": 2, "not drained": 3, "promises broken": 60}
    told = report.line({**FACTS, "is_sound": False, "figures": figures, "charge_counts": charged, "faults": []})
    assert told == (
        "chaos: seed 7, 600 s, NOT SOUND: 70,343 submitted, 2 lost, 0 double leases, 0 unexplained, 3 not drained, "
        "60 promises broken; 0 faults, recovery none needed"
    )


def test_the_summary_of_the_simulation_is_one_line() -> None:
    """Also of failed seeds and of safeguards whose removal did no harm."""
    summary = Summary.of(
        [
            Told("a::seed[3]", [("seed", 3), ("steps", 900), ("reached", {"crashed": 2})]),
            Told("a::seed[3]", [("seed", 3)], when="teardown"),
            Told("a::seed[9]", [("seed", 9), ("violation", "every job ends"), ("steps", 1200)]),
            Told("b::test_without_tokens", [("ablation", "lease"), ("caught", ["lease", 1023])]),
            Told("b::test_without_keys", [("ablation", "an idempotency key gives one job")]),
        ]
    )
    assert summary.line() == "simulation: 2 seeds (3 to 9), 2,100 steps, 1 violations, 1 of 2 ablations caught"
    assert summary.details() == ["reached crashed 2", "test_without_tokens: lease (seed 1023)"]


def test_a_session_without_simulation_has_no_summary() -> None:
    assert Summary.of([Told("c::test", [("figure", "x")])]).line() is None
    assert Summary(seeds=[4], step_count=10).line() == "simulation: 1 seeds (4 to 4), 10 steps, 0 violations"
