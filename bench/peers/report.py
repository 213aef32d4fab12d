"""Compares the peers in one table, by the best of each one's repetitions. A missing or failed peer has a row too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from bench.scenario import Figures

from .catalogue import Peer

Measured = Mapping[str, Mapping[str, Sequence[Figures]]]  # peer, phase, repetitions

# The figure that chooses the best repetition; a minus means that less is better. Noise only makes figures worse.
DECISIVE = {
    "drain1": "jobs_per_s",
    "drain2": "jobs_per_s",
    "latency": "-latency_p99_s",
    "herd": "-lag_max_s",
    "timer": "-lag_p99_s",
}
COLUMNS = (
    "",
    "drain, 1 worker",
    "2 workers",
    "jobs",
    "CPU µs/job, worker + server",
    "WAL B/job, submit + drain",
    "idle latency p50 / p99",
    "due at one instant: last start",
    "spread over 5 s: lag p50 / p99",
    "CPU stolen, used elsewhere",
)
NONE = "-"


def best(phase: str, repetitions: Sequence[Figures]) -> Figures | None:
    """The best of the repetitions that started every job, if there is one. A failure only if there is nothing else."""
    if not repetitions:
        return None
    key = DECISIVE[phase]

    def merit(figures: Figures) -> tuple[bool, bool, float]:
        if "error" in figures:
            return False, False, 0.0
        value = figures[key.removeprefix("-")]
        return True, figures["jobs_seen"] == figures["jobs"], -value if key.startswith("-") else value

    return max(repetitions, key=merit)


def summary(measured: Measured) -> dict[str, dict[str, Figures]]:
    return {
        name: {phase: found for phase, repetitions in phases.items() if (found := best(phase, repetitions)) is not None}
        for name, phases in measured.items()
    }


def rows(peers: Iterable[Peer], measured: Measured, missing: Mapping[str, str]) -> list[list[str]]:
    bests = summary(measured)
    return [
        [peer.title, f"MISSING: {missing[peer.name]}", *[NONE] * (len(COLUMNS) - 2)]
        if peer.name in missing
        else _row(peer, bests.get(peer.name, {}))
        for peer in peers
    ]


def table(rows: Sequence[Sequence[str]], caption: str) -> Table:
    shown = Table(*COLUMNS, title="peers: the same jobs on the same server", caption=caption)
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in rows:
        shown.add_row(*row)
    return shown


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Without the columns of phases that did not run."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    shown = [index for index in range(len(COLUMNS)) if any(row[index] != NONE for row in rows)]
    return "\n".join(f"| {' | '.join(line[index] for index in shown)} |" for line in lines)


def failures(measured: Measured) -> list[str]:
    return [
        f"{name}, {phase}: {figures['error']}"
        for name, phases in measured.items()
        for phase, repetitions in phases.items()
        for figures in repetitions
        if "error" in figures
    ]


def _row(peer: Peer, phases: Mapping[str, Figures]) -> list[str]:
    one, two = phases.get("drain1"), phases.get("drain2")
    return [
        peer.title,
        _cell(one, _rate),
        _cell(two, _rate),
        _cell(one or two, lambda figures: f"{figures['jobs']:,}"),
        _cell(one or two, lambda figures: f"{figures['cpu_us_per_job_worker']:,.0f} + {figures['cpu_us_per_job_server']:,.0f}"),
        _cell(one or two, _wal),
        _cell(phases.get("latency"), lambda figures: _milliseconds(figures, "latency_p50_s", "latency_p99_s")),
        _cell(phases.get("herd"), lambda figures: f"{figures['lag_max_s']:,.2f} s"),
        _cell(phases.get("timer"), lambda figures: _milliseconds(figures, "lag_p50_s", "lag_p99_s")),
        _noise(phases.values()),
    ]


def _cell(figures: Figures | None, shown: Any) -> str:
    if figures is None:
        return NONE
    if "error" in figures:
        return "FAILED"
    seen = "" if figures["jobs_seen"] == figures["jobs"] else f" ({figures['jobs_seen']:,} of {figures['jobs']:,} started)"
    return f"{shown(figures)}{seen}"


def _rate(figures: Figures) -> str:
    """The rate of starts. If the store records the ends much more slowly, that rate too."""
    started, recorded = figures["jobs_per_s"], figures["jobs_per_s_recorded"]
    told = f"{started:,.0f}/s"
    return f"{told} ({recorded:,.0f}/s until recorded)" if recorded < 0.8 * started else told


def _wal(figures: Figures) -> str:
    submit, drain = figures["wal_bytes_per_job_submit"], figures["wal_bytes_per_job"]
    return NONE if submit is None or drain is None else f"{submit:,.0f} + {drain:,.0f}"


def _milliseconds(figures: Figures, *keys: str) -> str:
    return " / ".join(f"{figures[key] * 1e3:,.1f}" for key in keys) + " ms"


def _noise(phases: Iterable[Figures]) -> str:
    """The maximum over its phases: steal time, and CPU used by other programs on this machine."""
    whole = [figures for figures in phases if "error" not in figures]
    if not whole:
        return NONE
    return ", ".join(f"{max(figures[key] for figures in whole):.0f} %" for key in ("steal_pct", "elsewhere_pct"))
