"""The results: one line each in a file, so that an interrupted run can continue; printed as a table, a summary line and
JSON."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

import msgspec

from .catalogue import ROOT, Mutant
from .clones import CACHE, Code, Verdict

CAUGHT_SHARE_MIN = 0.95
GENERATED_SHARE_MIN = 0.6  # about 70 % of a draw that was never seen are caught; 0.6 is two standard deviations below


class Kept:
    """Verdicts of earlier runs. One is valid for the same mutant on the same code."""

    def __init__(self, root: Path = ROOT) -> None:
        self._path = root / CACHE / "verdicts.jsonl"

    def read(self, mutants: Sequence[Mutant], code: Code) -> dict[str, Verdict]:
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        wanted = {(mutant.name, mutant.digest, code.of(mutant.tests)) for mutant in mutants}
        known = [msgspec.json.decode(line, type=Verdict) for line in lines]
        return {one.name: one for one in known if (one.name, one.digest, one.code) in wanted}

    def add(self, verdict: Verdict) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(verdict) + b"\n")


def caught_share(verdicts: Sequence[Verdict]) -> float:
    return sum(one.outcome == "caught" for one in verdicts) / len(verdicts) if verdicts else 1.0


def line(verdicts: Sequence[Verdict]) -> str:
    caught = sum(one.outcome == "caught" for one in verdicts)
    survived = sorted(one.name for one in verdicts if one.outcome == "survived")
    without = sorted(one.name for one in verdicts if one.outcome == "no verdict")
    text = (
        f"mutants: {len(verdicts)}, caught {caught} ({caught_share(verdicts):.1%}), survived: {', '.join(survived) or 'none'}"
    )
    text = text.replace("%)", " %)")
    return f"{text}, no verdict: {', '.join(without)}" if without else text


def table(verdicts: Sequence[Verdict]) -> str:
    rows = [(one.outcome, one.name, f"{one.took_s:.0f} s", one.by.rpartition("::")[2] or one.error) for one in verdicts]
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(3)]
    return "\n".join("  ".join([*(row[n].ljust(widths[n]) for n in range(3)), row[3]]) for row in sorted(rows))


def survivors(verdicts: Sequence[Verdict], mutants: Sequence[Mutant]) -> str:
    """Each mutant that no test caught: where it is, what it changes, which tests should have caught it."""
    survived = {one.name for one in verdicts if one.outcome == "survived"}
    return "\n".join(_survivor(mutant) for mutant in mutants if mutant.name in survived)


def _survivor(mutant: Mutant) -> str:
    said = unified_diff(mutant.before.splitlines(), mutant.after.splitlines(), lineterm="", n=0)
    changed = [f"    {text}" for text in said if not text.startswith(("---", "+++", "@@"))]
    return "\n".join([f"{mutant.name}: {mutant.file}, {mutant.breaks}", *changed, f"    tests: {', '.join(mutant.tests)}"])


def document(verdicts: Sequence[Verdict], mutants: Sequence[Mutant], *, seed: int) -> bytes:
    of = {mutant.name: mutant for mutant in mutants}
    rows = [
        {"file": of[one.name].file, "breaks": of[one.name].breaks, "rule": of[one.name].rule, **msgspec.structs.asdict(one)}
        for one in verdicts
    ]
    caught = sum(one.outcome == "caught" for one in verdicts)
    summary = {"seed": seed, "count": len(verdicts), "caught": caught, "caught_share": caught_share(verdicts)}
    return msgspec.json.format(msgspec.json.encode({**summary, "mutants": rows}))
