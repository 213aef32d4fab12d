"""Compares two series of runs pair by pair: which figures of the head are worse than the base's, and how certain is that?

Each figure becomes one ratio head/base per pair. CPU, statements and WAL per job depend little on the load of the machine: the
median of their ratios must be within the limit. Wall-clock figures depend on it, so they are judged by confidence: a regression
counts only if its lower bound at 90 % confidence (one-sided, t interval over the logarithms of the ratios) is above the limit.
Statements per job are treated as a wall-clock figure if each statement carries many jobs: the size of a batch is what arrived
in the meantime, and the same code drained 50,000 jobs with 0.005 statements each at 18,000 jobs/s and with 0.010 each at 7,000.

Of the wall-clock figures, rates, medians and figures with a target are judged. Other tails (p99, the longest) vary too much
from run to run: with a dozen of them, one would fail by chance in most comparisons. They are shown and not judged, and so are
the parts of a CPU total.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

LIMIT = 1.03
CONFIDENCE = 0.90
BATCHED = 0.1  # statements per job: below this, each carries a batch
# quantiles: of the bound that decides, and of the interval in the table
ONE_SIDED, TWO_SIDED = CONFIDENCE, (1 + CONFIDENCE) / 2

JudgedBy = Literal["median", "confidence", "not judged"]
Verdict = Literal["within", "worse", "not judged"]
Run = Mapping[str, Any]  # the figures of one run, as `python -m bench SCENARIO --json` prints them
Pair = tuple[Run, Run]  # of the base, of the head

_COST = re.compile(r"(cpu_us|statements|wal_bytes)_per_job(_|$)")
_CPU_PART = re.compile(r"cpu_us_per_job_(?P<who>worker|scheduler|server|client|api)(?P<way>_.*)?$")
_RATE = re.compile(r"_per_s(_|$)")
_SECONDS = re.compile(r"_s(_|$)")
_MEDIAN = re.compile(r"_p50_s(_|$)")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of one scenario over all pairs."""

    scenario: str
    figure: str
    base: float  # median
    head: float  # median
    ratio: float  # head/base: the median of the pairs if the figure is judged by it, else their geometric mean
    low: float | None  # the 90 % confidence interval of the geometric mean; none for a single pair
    high: float | None
    regression: float | None  # the figure that decides: how many times worse the head is, at least
    pairs: int
    judged_by: JudgedBy
    verdict: Verdict

    @property
    def may_be_noise(self) -> bool:
        """The pairs differ so much that the head may not be worse at all."""
        return self.low is not None and self.high is not None and self.low <= 1 <= self.high

    @property
    def is_blunt(self) -> bool:
        """The interval is so wide that a regression of 10 % could be hidden in it."""
        return (
            self.judged_by == "confidence" and self.low is not None and self.high is not None and self.high / self.low > 1.1**2
        )

    def document(self) -> dict[str, Any]:
        return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in asdict(self).items()}


def compare(scenario: str, pairs: Sequence[Pair], limit: float = LIMIT) -> list[Comparison]:
    """Every figure above 0 that all runs report, in the order of the scenario."""
    targets = pairs[0][1].get("targets", {})
    figures = [figure for figure in pairs[0][1] if _is_compared(figure) and _is_told_by_all(figure, pairs)]
    batched = [figure for figure in figures if _is_batched(figure, pairs)]
    return [
        _compared(scenario, figure, pairs, "confidence" if figure in batched else judged_by(figure, targets, figures), limit)
        for figure in figures
    ]


def left_out(pairs: Sequence[Pair]) -> list[str]:
    """Figures that would be judged if every run reported them."""
    keys = list(
        dict.fromkeys(key for pair in pairs for run in pair for key, value in run.items() if _is_compared(key) and value)
    )
    judged = [key for key in keys if judged_by(key, pairs[0][1].get("targets", {}), keys) != "not judged"]
    return [key for key in judged if not _is_told_by_all(key, pairs)]


def judged_by(figure: str, targets: Collection[str], beside: Collection[str]) -> JudgedBy:
    part = _CPU_PART.match(figure)
    if part is not None:
        way = part["way"] or ""
        is_load = part["who"] == "client" and f"cpu_us_per_job_api{way}" in beside  # the client is a load generator, not Sexton
        return "not judged" if is_load or f"cpu_us_per_job{way}" in beside else "median"
    if _COST.match(figure):
        return "median"
    return "confidence" if _RATE.search(figure) or _MEDIAN.search(figure) or figure in targets else "not judged"


def is_better_when_high(figure: str) -> bool:
    return _RATE.search(figure) is not None


def _compared(scenario: str, figure: str, pairs: Sequence[Pair], by: JudgedBy, limit: float) -> Comparison:
    base, head = [pair[0][figure] for pair in pairs], [pair[1][figure] for pair in pairs]
    logs = [math.log(after / before) for before, after in zip(base, head, strict=True)]
    mean = statistics.fmean(logs)
    reach = None if len(logs) < 2 else statistics.stdev(logs) / math.sqrt(len(logs))
    ratio, worse_by = math.exp(mean), -mean if is_better_when_high(figure) else mean
    regression: float | None = None
    match by:
        case "median":
            ratio = regression = math.exp(statistics.median(logs))
        case "confidence" if reach is not None:
            regression = math.exp(worse_by - t_quantile(ONE_SIDED, len(logs) - 1) * reach)
        case _:
            by = "not judged"
    low = high = None
    if reach is not None:
        span = t_quantile(TWO_SIDED, len(logs) - 1) * reach
        low, high = math.exp(mean - span), math.exp(mean + span)
    verdict: Verdict = "not judged" if regression is None else "worse" if regression > limit else "within"
    middle = statistics.median(base), statistics.median(head)
    return Comparison(scenario, figure, *middle, ratio, low, high, regression, len(pairs), by, verdict)


def t_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t distribution, for a share of 0.5 or more."""
    low, high = 0.0, 1e3
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_share(middle, freedom) < share else (low, middle)
    return high


def _t_share(value: float, freedom: int) -> float:
    """The share below `value`, as a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(value / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for step in range(1 if is_odd else 0, freedom - 1, 2):
        total += term
        term *= (step + 1) / (step + 2) * cosine * cosine
    between = 2 / math.pi * (angle + sine * total) if is_odd else sine * total
    return 0.5 + between / 2


def _is_compared(figure: str) -> bool:
    return any(kind.search(figure) for kind in (_COST, _RATE, _SECONDS))


def _is_batched(figure: str, pairs: Sequence[Pair]) -> bool:
    return figure.startswith("statements_per_job") and all(run[figure] < BATCHED for pair in pairs for run in pair)


def _is_told_by_all(figure: str, pairs: Sequence[Pair]) -> bool:
    values = [run.get(figure) for pair in pairs for run in pair]
    return all(isinstance(value, int | float) and value > 0 for value in values)
