"""One picture of the run: lag and throughput over time, with a band for every fault. Plain SVG, no library."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape

from .evidence import Evidence
from .recovery import Recovery, lags

WIDTH, LEFT, RIGHT = 1280, 140, 20
LAG_TOP, LAG_HEIGHT = 60, 220
WORK_TOP, WORK_HEIGHT = 320, 160
FAULTS_TOP, ROW = 520, 15
LAG_S = (0.001, 100.0)  # the range that is shown, on a logarithmic scale
STYLE = "font: 12px system-ui, sans-serif; fill: #24292f"
STARTS, ENDS, MEDIAN, WORST = "#1f6feb", "#1a7f37", "#1f6feb", "#d1242f"
BANDS = ("#8250df", "#d1242f", "#9a6700", "#1a7f37", "#0550ae", "#57606a", "#bf3989", "#116329")

Across = Callable[[float], float]


def draw(title: str, evidence: Evidence, recovered: Sequence[Recovery]) -> str:
    begin = evidence.began_at
    seconds = max(1.0, evidence.ended_at - begin)

    def across(at: float) -> float:
        return LEFT + min(max(at - begin, 0.0), seconds) / seconds * (WIDTH - LEFT - RIGHT)

    kinds = sorted({each.fault.kind for each in recovered})
    height = FAULTS_TOP + ROW * len(kinds) + 40
    parts = [_text(WIDTH / 2, 22, title, anchor="middle", weight=600)]
    parts += _bands(recovered, kinds, across)
    parts += _lag(evidence, across)
    parts += _throughput(evidence, across)
    step = next(step for step in (5, 10, 15, 30, 60, 120, 300, 600) if seconds / step <= 25 or step == 600)
    for second in range(0, int(seconds) + 1, step):
        parts.append(_text(across(begin + second), height - 12, f"{second} s", anchor="middle"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _bands(recovered: Sequence[Recovery], kinds: Sequence[str], across: Across) -> list[str]:
    """Dark while the fault lasts, light until the recovery from it ends."""
    parts = []
    for each in recovered:
        row = kinds.index(each.fault.kind)
        colour = BANDS[row % len(BANDS)]
        felt_until = max(each.fault.ended_at, each.fault.since + each.seconds)
        told = escape(f"{each.fault.kind}: {each.fault.note}; recovered after {each.seconds:.1f} s")
        x, held, felt = across(each.fault.began_at), across(each.fault.ended_at), across(felt_until)
        y = FAULTS_TOP + ROW * row
        parts.append(
            f"<g><title>{told}</title>"
            f'<rect x="{x:.1f}" y="{LAG_TOP}" width="{max(1.0, felt - x):.1f}" height="{FAULTS_TOP - LAG_TOP}" '
            f'fill="{colour}" opacity="0.08"/>'
            f'<rect x="{x:.1f}" y="{y}" width="{max(1.5, felt - x):.1f}" height="{ROW - 3}" fill="{colour}" opacity="0.35"/>'
            f'<rect x="{x:.1f}" y="{y}" width="{max(2.0, held - x):.1f}" height="{ROW - 3}" fill="{colour}"/></g>'
        )
    for row, kind in enumerate(kinds):
        parts.append(_text(LEFT - 8, FAULTS_TOP + ROW * row + 10, kind, anchor="end", colour=BANDS[row % len(BANDS)]))
    return parts


def _lag(evidence: Evidence, across: Across) -> list[str]:
    low, high = (math.log10(value) for value in LAG_S)

    def up(lag: float) -> float:
        share = (math.log10(min(max(lag, LAG_S[0]), LAG_S[1])) - low) / (high - low)
        return LAG_TOP + LAG_HEIGHT - share * LAG_HEIGHT

    buckets: defaultdict[int, list[float]] = defaultdict(list)
    for at, lag in lags(evidence):
        buckets[int(at - evidence.began_at)].append(lag)
    parts = [_text(LEFT, LAG_TOP - 8, "lag: handler's start after due time, per second of start")]
    parts += [_text(LEFT + 360, LAG_TOP - 8, "median", colour=MEDIAN), _text(LEFT + 410, LAG_TOP - 8, "worst", colour=WORST)]
    for tick in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0):
        parts += [_rule(up(tick)), _text(LEFT - 8, up(tick) + 4, f"{tick:g} s", anchor="end")]
    for pick, colour in ((0.5, MEDIAN), (1.0, WORST)):
        points = [
            (across(evidence.began_at + second + 0.5), up(_quantile(found, pick))) for second, found in sorted(buckets.items())
        ]
        parts.append(_polyline(points, colour))
    return parts


def _throughput(evidence: Evidence, across: Across) -> list[str]:
    counts: dict[str, defaultdict[int, int]] = {"start": defaultdict(int), "end": defaultdict(int)}
    for line in evidence.lines:
        if line.what in counts:
            counts[line.what][int(line.at - evidence.began_at)] += 1
    highest = max([1, *counts["start"].values(), *counts["end"].values()])

    def up(count: float) -> float:
        return WORK_TOP + WORK_HEIGHT - count / highest * WORK_HEIGHT

    parts = [_text(LEFT, WORK_TOP - 8, "handlers per second")]
    parts += [_text(LEFT + 150, WORK_TOP - 8, "begun", colour=STARTS), _text(LEFT + 200, WORK_TOP - 8, "ended", colour=ENDS)]
    for tick in (0, highest // 2, highest):
        parts += [_rule(up(tick)), _text(LEFT - 8, up(tick) + 4, str(tick), anchor="end")]
    seconds = range(int(evidence.ended_at - evidence.began_at) + 1)
    for what, colour in (("end", ENDS), ("start", STARTS)):
        parts.append(_polyline([(across(evidence.began_at + n + 0.5), up(counts[what][n])) for n in seconds], colour))
    return parts


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _rule(y: float) -> str:
    return f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#d8dee4"/>'


def _polyline(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400, colour: str = "#24292f") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{STYLE}; font-weight: {weight}; fill: {colour}">'
        f"{escape(text)}</text>"
    )
