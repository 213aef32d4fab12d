"""`python -m bench.page FOLDER`: writes docs/performance.md and its charts from the benchmark results in that folder.

`figures.jsonl` is the output of `python -m bench all --json`; `peers.jsonl`, of `python -m bench peers --json`; `stacks.txt`,
the profile of a worker (bench.profile); `statements.jsonl`, of a drain on a PostgreSQL that has pg_stat_statements;
`knobs.jsonl`, of bench.studies.knobs. All but the first may be missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import plot, profile
from .peers import catalogue, report
from .scenario import Target
from .scenarios import ALL
from .tables import level

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WORDS = ROOT / "bench" / "page.md"  # the text around the figures
STATEMENTS_SHOWN = 8

Outcome = Mapping[str, Any]


class Plot(NamedTuple):
    scenario: str
    series: tuple[str, ...]
    title: str
    x_label: str
    y_label: str
    log_x: bool = False


PLOTS = {
    "herd.svg": Plot("herd", ("share_over_lag_s",), "50,000 due at one instant", "seconds late", "share started"),
    "slots.svg": Plot("sizes", ("jobs_per_s_over_slots",), "Drain over slots", "slots (size of claims)", "jobs/s", log_x=True),
    "workers.svg": Plot("sizes", ("jobs_per_s_over_workers",), "Drain over workers, two cores", "worker processes", "jobs/s"),
    "batch.svg": Plot("sizes", ("submitted_per_s_over_batch",), "Submission over batch", "jobs per call", "jobs/s", log_x=True),
    "depth.svg": Plot(
        "depth", ("jobs_per_s_over_depth",), "Drain over depth", "waiting, and as many executions", "jobs/s", True
    ),
    "scale.svg": Plot("scale", ("jobs_per_s_over_workers",), "Sleeping jobs over workers", "worker processes", "jobs/s"),
    "bloat.svg": Plot("bloat", ("jobs_per_s_over_s",), "While a snapshot is held", "seconds", "jobs/s"),
    "steady.svg": Plot("steady", ("share_over_lag_s",), "8,333 jobs/s, due 1 to 20 s ahead", "seconds late", "share started"),
}


def main(folder: Path) -> None:
    outcomes = {outcome["scenario"]: outcome for outcome in _lines(folder / "figures.jsonl")}
    pictures = DOCS / "performance"
    pictures.mkdir(exist_ok=True)
    drawn = {name: picture for name, wanted in PLOTS.items() if (picture := _drawn(wanted, outcomes)) is not None}
    for name, picture in drawn.items():
        (pictures / name).write_text(picture)
    if (folder / "stacks.txt").exists():
        flames = plot.flames("A worker under load: where its time goes", profile.read(folder / "stacks.txt"))
        (pictures / "worker.svg").write_text(flames)
    parts = {
        "targets": _targets(outcomes.values()),
        "costs": _costs(outcomes),
        "peers": _peers(folder / "peers.jsonl"),
        "statements": _statements(folder / "statements.jsonl"),
        "knobs": _knobs(folder / "knobs.jsonl"),
        "pictures": _table(["", ""], _pairs([f"![{PLOTS[name].title}](performance/{name})" for name in drawn])),
        "missing": _missing(outcomes),
        "conditions": _conditions(next(iter(outcomes.values()))),
    }
    text = WORDS.read_text()
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    (DOCS / "performance.md").write_text(text)


def _drawn(wanted: Plot, outcomes: Mapping[str, Outcome]) -> str | None:
    series = outcomes.get(wanted.scenario, {}).get("series", {})
    points = {name: series[name] for name in wanted.series if series.get(name)}
    return plot.lines(wanted.title, wanted.x_label, wanted.y_label, points, log_x=wanted.log_x) if points else None


def _targets(outcomes: Iterable[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        if "failed" in outcome:
            rows.append([outcome["scenario"], "", "failed", "", "", "no", ""])
            continue
        beside = f"{outcome['steal_pct']:.0f} / {outcome['elsewhere_pct']:.0f} %"
        for key, limits in outcome["targets"].items():
            target, value = Target(**limits), outcome[key]
            rows.append(
                [
                    f"`{outcome['scenario']}`",
                    f"`{key}`",
                    "" if value is None else _number(value),
                    f"{target.must:,g}",
                    f"{target.goal:,g}",
                    level(target, value),
                    beside,
                ]
            )
    return _table(["scenario", "figure", "seen", "must", "goal", "reached", "CPU stolen / used elsewhere"], rows)


def _missing(outcomes: Mapping[str, Outcome]) -> str:
    missing = [f"`{name}`" for name in ALL if name not in outcomes]
    return f"Not measured in this run: {', '.join(missing)}." if missing else ""


def _pairs(cells: Sequence[str]) -> list[list[str]]:
    return [[*cells[place : place + 2], ""][:2] for place in range(0, len(cells), 2)]


def _costs(outcomes: Mapping[str, Outcome]) -> str:
    drain = outcomes.get("drain")
    if drain is None or "failed" in drain:
        return ""
    keys = {
        "cpu_us_per_job_client": "CPU of the submitter, µs",
        "cpu_us_per_job_worker": "CPU of the worker, µs",
        "cpu_us_per_job_server": "CPU of PostgreSQL, µs",
        "wal_bytes_per_job": "WAL, bytes",
        "statements_per_job": "statements",
        "dead_tuples_per_job": "dead tuples",
    }
    return _table(["of a drain, per job", ""], [[name, _number(drain[key])] for key, name in keys.items() if drain.get(key)])


def _peers(path: Path) -> str:
    if not path.exists():
        return "Not measured in this run: `make peers`."
    conclusion = _lines(path)[-1]
    measured = {name: {phase: [figures] for phase, figures in best.items()} for name, best in conclusion["best"].items()}
    rows = report.rows([catalogue.ALL[name] for name in conclusion["peers"]], measured, conclusion["missing"])
    return report.markdown(rows)


def _knobs(path: Path) -> str:
    if not path.exists():
        return "Not measured in this run: `python -m bench.studies.knobs`."
    rows = [
        [turn["knob"], turn["setting"], *("" if turn[key] is None else f"{turn[key]:.2f}" for key in ("rate", "cpu", "wal"))]
        for turn in _lines(path)
    ]
    return _table(["knob", "set to", "jobs/s", "CPU per job", "WAL per job"], rows)


def _statements(path: Path) -> str:
    if not path.exists():
        return "Not measured in this run."
    (outcome,) = _lines(path)
    jobs = outcome["jobs_seen"]
    rows = [
        [f"`{row['query'][:90]}`", f"{row['calls']:,}", f"{row['total_ms'] * 1000 / jobs:.1f}"]
        for row in (outcome["hot_statements"] or [])[:STATEMENTS_SHOWN]
    ]
    return _table(["statement", "calls", "µs per job"], rows)


def _conditions(outcome: Outcome) -> str:
    machine, postgres = outcome["machine"], outcome["postgres"]
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['kernel']}, {machine['python']}, "
        f"PostgreSQL {postgres['version']} beside the services, "
        + ", ".join(f"`{name} = {postgres['settings'][name]}`" for name in ("fsync", "synchronous_commit"))
        + f"; measured {outcome['measured_at'][:10]}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
