"""The results so far, one line per run, so that an interrupted comparison can continue."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from .judgement import Pair, Run
from .plan import Step
from .trees import Harness, Tree


class Journal:
    def __init__(self, path: Path, *, resume: bool) -> None:
        """Without `resume`, the results of an earlier comparison of the same trees are moved aside."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._runs: dict[Step, Run] = {}
        if resume:
            self._runs = _read(path)
        elif path.exists():
            at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            path.rename(path.with_name(f"{path.stem}.{at:%Y%m%d-%H%M%S}{path.suffix}"))

    def has_pair(self, step: Step) -> bool:
        """Both runs of a pair must be measured one directly after the other, so half a pair is measured again."""
        return {replace(step, tree="base"), replace(step, tree="head")} <= self._runs.keys()

    def append(self, step: Step, run: Run) -> None:
        self._runs[step] = run
        with self.path.open("a") as file:  # the newline comes first, because the last line may be incomplete
            file.write("\n" + json.dumps({**asdict(step), "run": run}))

    def pairs(self, steps: list[Step]) -> list[Pair]:
        """The steps of complete pairs."""
        return [
            (self._runs[step], self._runs[replace(step, tree="head")])
            for step in steps
            if step.tree == "base" and self.has_pair(step)
        ]


def path(folder: Path, base: Tree, head: Tree, harness: Harness) -> Path:
    change = f"-{head.change}" if head.is_dirty else ""
    return folder / f"{base.short}-{head.short}{change}-{harness}.jsonl"


def _read(path: Path) -> dict[Step, Run]:
    runs = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            told = json.loads(line)
        except json.JSONDecodeError:
            continue  # empty, or the incomplete last line of a killed process
        run = told.pop("run")
        runs[Step(**told)] = run
    return runs
