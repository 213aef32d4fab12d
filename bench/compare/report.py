"""The result, as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from .judgement import Comparison
from .trees import Harness, Tree

COLOURS = {"within": "green", "worse": "red", "not judged": "white"}
JUDGED_BY = {"median": "median of pairs", "confidence": "90 % confidence", "not judged": ""}


def table(base: Tree, head: Tree, found: Sequence[Comparison], *, limit: float, caption: str, everything: bool) -> Table:
    """Without `everything`, only judged figures. With a single pair, no wall-clock figure is judged."""
    drawn = Table(
        "scenario", "figure", "base", "head", "head/base", "90 % interval", "judged by", f"limit {limit:g}",
        title=f"{head} against {base}", caption=caption,
    )  # fmt: skip
    before = None
    for one in found:
        if one.verdict == "not judged" and one.pairs > 1 and not everything:
            continue
        interval = "" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
        drawn.add_row(
            one.scenario if one.scenario != before else "", one.figure, _number(one.base), _number(one.head),
            f"{one.ratio:.3f}", interval, JUDGED_BY[one.judged_by], f"[{COLOURS[one.verdict]}]{one.verdict}[/]",
        )  # fmt: skip
        before = one.scenario
    for column in drawn.columns[2:6]:
        column.justify = "right"
    return drawn


def documents(base: Tree, head: Tree, harness: Harness, found: Sequence[Comparison], limit: float) -> list[dict[str, Any]]:
    trees = {"base_commit": base.commit, "head_commit": head.commit, "head_is_dirty": head.is_dirty, "harness": harness}
    return [{**one.document(), "limit": limit, **trees} for one in found]


def conclusion(found: Sequence[Comparison], limit: float) -> str:
    judged = [one for one in found if one.verdict != "not judged"]
    worse = [one for one in judged if one.verdict == "worse"]
    if not judged:
        return "no figure was judged: wall-clock figures need two pairs"
    if not worse:
        return f"none of {len(judged)} judged figures is worse than {limit:g} times the base{_caution(judged)}"
    named = ", ".join(f"{one.scenario} {one.figure} ({one.regression:.3f}{_doubt(one)})" for one in worse)
    return f"WORSE than {limit:g} times the base, {len(worse)} of {len(judged)} judged figures: {named}"


def _caution(judged: Sequence[Comparison]) -> str:
    blunt = sum(one.is_blunt for one in judged)
    return (
        f"; {blunt} vary so much that a regression of 10 % could be hidden: use a quiet machine or more pairs" if blunt else ""
    )


def _doubt(one: Comparison) -> str:
    return f"; may be noise: {one.low:.2f} to {one.high:.2f}" if one.may_be_noise else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
