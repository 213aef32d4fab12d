"""The report of a soak: JSON for programs, text for people, SVG as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import plot

from .sampling import Series
from .slopes import Verdict

_PICTURES = {
    "memory": ("Memory of each process", "MiB"),
    "files": ("Open files of each process", "files"),
    "dead": ("Dead rows", "rows"),
    "table": ("Tables", "MiB"),
    "index": ("Indexes", "MiB"),
}
_SMALL = 0.1  # any series: such a line shows nothing useful
_LINES = 6  # in one picture: the series with the highest last values


def text(about: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    lines = [f"{name}: {value}" for name, value in about.items()]
    lines += ["", f"{'':28}{'at a third':>12}{'at the end':>12}{'per hour':>12}{'bound':>12}  ", "-" * 80]
    for one in verdicts:
        if one.is_flat and max(one.first, one.last) < _SMALL:
            continue
        word = "flat" if one.is_flat else "GROWS"
        numbers = "".join(f"{value:12,.1f}" for value in (one.first, one.last, one.per_hour, one.bound.per_hour))
        lines.append(f"{one.name:28}{numbers}  {word}")
    return "\n".join([*lines, ""])


def pictures(series: Series, held_s: tuple[float, float]) -> dict[str, str]:
    """The series by the first word of their names, which is what they show."""
    drawn = {}
    for kind, (title, unit) in _PICTURES.items():
        lines = {name.partition(" ")[2] or name: points for name, points in series.items() if name.split()[0] == kind}
        highest = sorted(lines, key=lambda name: -lines[name][-1][1])[:_LINES]
        minutes = {name: [[at_s / 60, value] for at_s, value in lines[name]] for name in highest}
        held = f"snapshot held from minute {held_s[0] / 60:.0f} to {held_s[1] / 60:.0f}"
        drawn[kind] = plot.lines(f"{title} ({held})", "minutes", unit, minutes)
    return drawn


def write(folder: Path, about: Mapping[str, Any], verdicts: Sequence[Verdict], series: Series) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    told = [one._asdict() | {"bound": one.bound._asdict()} for one in verdicts]
    whole = {**about, "verdicts": told, "series": series}
    (folder / "soak.json").write_text(json.dumps(whole, indent=1) + "\n")
    (folder / "soak.txt").write_text(text(about, verdicts))
    for kind, picture in pictures(series, about["held_s"]).items():
        (folder / f"soak-{kind}.svg").write_text(picture)
