"""Tables for people: one scenario with its spread, and all scenarios with their targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from .scenario import Scenario, Target

Outcome = tuple[Scenario, dict[str, Any] | None]  # none: the scenario failed


def table(scenario: Scenario, outcome: dict[str, Any]) -> Table:
    drawn = Table(
        "", "best", "min", "median", "max", "must", "goal",
        title=f"{scenario.name}: {scenario.about}", caption=_conditions(outcome),
    )  # fmt: skip
    for key, spread in outcome["spread"].items():
        value, target = outcome[key], scenario.targets.get(key)
        shown, must, goal = f"{value:,.6g}", "", ""
        if target is not None:
            shown, must, goal = f"[{_colour(target, value)}]{shown}[/]", f"{target.must:,g}", f"{target.goal:,g}"
        drawn.add_row(key, shown, *(f"{spread[part]:,.6g}" for part in ("min", "median", "max")), must, goal)
    for column in drawn.columns[1:]:
        column.justify = "right"
    return drawn


def summary(outcomes: Sequence[Outcome]) -> Table:
    """Every figure that has a target. A scenario that failed has a row too."""
    done = next((outcome for _, outcome in outcomes if outcome is not None), None)
    drawn = Table("scenario", "figure", "value", "must", "goal", "reached", "steal %", "elsewhere %")
    drawn.caption = None if done is None else _conditions(done)
    for scenario, outcome in outcomes:
        if outcome is None:
            drawn.add_row(scenario.name, "", "", "", "", "[red]failed[/]")
            continue
        beside = [f"{outcome[key]:.1f}" for key in ("steal_pct", "elsewhere_pct")]
        for key, target in scenario.targets.items():
            value = outcome[key]
            drawn.add_row(
                scenario.name, key, "" if value is None else f"{value:,.4g}", f"{target.must:,g}", f"{target.goal:,g}",
                f"[{_colour(target, value)}]{level(target, value)}[/]", *beside,
            )  # fmt: skip
    for column in drawn.columns[2:5]:
        column.justify = "right"
    return drawn


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """The figures that miss what a release needs. A figure that could not be measured is one of them."""
    return [
        f"{scenario.name}: {key} is {value}, and must be {target.must:g}"
        for scenario, outcome in outcomes
        if outcome is not None
        for key, target in scenario.targets.items()
        if level(target, value := outcome[key]) in ("no", "unknown")
    ]


def level(target: Target, value: float | None) -> str:
    if value is None:
        return "unknown"
    if not target.is_met(target.must, value):
        return "no"
    return "goal" if target.is_met(target.goal, value) else "must"


def _colour(target: Target, value: float | None) -> str:
    return {"no": "red", "must": "yellow", "goal": "green", "unknown": "white"}[level(target, value)]


def _conditions(outcome: dict[str, Any]) -> str:
    return (
        f"{outcome['machine']['cores']} x {outcome['machine']['cpu']}, PostgreSQL {outcome['postgres']['version']}, "
        f"best of {outcome['repetitions']}"
    )
