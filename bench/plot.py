"""Charts as SVG, drawn from series of points and from sampled stacks. No library: a generated page should not need more than
the benchmark does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 34, 46
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
FRAME_HEIGHT = 17
FRAME_WIDTH_MIN = 1.5  # pixels; narrower frames are left out
STYLE = "font: 12px system-ui, sans-serif; fill: #24292f"

Points = Sequence[Sequence[float]]
Place = Callable[[float], float]


def lines(title: str, x_label: str, y_label: str, series: Mapping[str, Points], *, log_x: bool = False) -> str:
    """One line for each series of [x, y], with y from zero."""
    xs = [point[0] for points in series.values() for point in points]
    highest = max((point[1] for points in series.values() for point in points), default=1.0) or 1.0
    across = _across(xs, log_x=log_x)
    y_ticks = _ticks(highest)
    top = max(highest, y_ticks[-1])

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    parts = [_text(WIDTH / 2, 18, title, anchor="middle", weight=600)]
    for tick in y_ticks:
        parts.append(_line(LEFT, up(tick), WIDTH - RIGHT, up(tick), "#d8dee4"))
        parts.append(_text(LEFT - 8, up(tick) + 4, _number(tick), anchor="end"))
    x_ticks = _x_ticks(xs, log_x=log_x)
    parts += [_text(across(tick), HEIGHT - BOTTOM + 18, _number(tick), anchor="middle") for tick in x_ticks]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, anchor="middle"))
    parts.append(_text(14, (TOP + HEIGHT - BOTTOM) / 2, y_label, anchor="middle", turned=True))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(points) <= 20:
            parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        if len(series) > 1:
            parts.append(_text(LEFT + 12, TOP + 14 + 16 * number, name, colour=colour))
    return _svg(WIDTH, HEIGHT, parts)


def flames(title: str, stacks: Mapping[tuple[str, ...], int]) -> str:
    """A flame graph: the width of a box is the share of samples with that function on the stack."""
    total = sum(stacks.values()) or 1
    boxes: list[tuple[int, float, float, str]] = []  # depth, from, to, name
    _stack(sorted(stacks.items()), 0, 0.0, WIDTH * 1.6 / total, boxes)
    deepest = max((depth for depth, *_ in boxes), default=0)
    height = TOP + (deepest + 1) * FRAME_HEIGHT + 8
    parts = [_text(WIDTH * 0.8, 18, title, anchor="middle", weight=600)]
    for depth, begin, end, name in boxes:
        y = height - 8 - (depth + 1) * FRAME_HEIGHT
        share = (end - begin) / (WIDTH * 1.6)
        hue = 28 + sum(map(ord, name)) % 24
        shown = escape(name[: max(0, int((end - begin) / 6.6))])
        parts.append(
            f'<g><title>{escape(name)}: {share:.1%}</title><rect x="{begin:.1f}" y="{y}" width="{end - begin:.1f}" '
            f'height="{FRAME_HEIGHT - 1}" fill="hsl({hue} 80% 68%)"/><text x="{begin + 3:.1f}" y="{y + 12}" '
            f'style="{STYLE}; font-size: 11px">{shown}</text></g>'
        )
    return _svg(int(WIDTH * 1.6), height, parts)


def _stack(
    stacks: Sequence[tuple[tuple[str, ...], int]],
    depth: int,
    begin: float,
    scale: float,
    boxes: list[tuple[int, float, float, str]],
) -> None:
    groups: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for stack, count in stacks:
        if len(stack) > depth:
            groups.setdefault(stack[depth], []).append((stack, count))
    for name, group in groups.items():
        end = begin + scale * sum(count for _, count in group)
        if end - begin >= FRAME_WIDTH_MIN:
            boxes.append((depth, begin, end, name))
            _stack(group, depth + 1, begin, scale, boxes)
        begin = end


def _across(xs: Sequence[float], *, log_x: bool) -> Place:
    def spread(x: float) -> float:
        return math.log10(max(x, 1.0)) if log_x else x

    low, high = (spread(min(xs)), spread(max(xs))) if xs else (0.0, 1.0)
    span = (high - low) or 1.0
    return lambda x: LEFT + (spread(x) - low) / span * (WIDTH - LEFT - RIGHT)


def _ticks(highest: float) -> list[float]:
    """Round numbers from zero to just above the maximum."""
    step = 10 ** math.floor(math.log10(highest))
    step *= next(factor for factor in (0.2, 0.25, 0.5, 1, 2) if highest / (step * factor) <= 6)
    return [step * number for number in range(math.ceil(highest / step) + 1)]


def _x_ticks(xs: Sequence[float], *, log_x: bool) -> list[float]:
    if log_x or len(set(xs)) <= 8:
        return sorted(set(xs))
    low, high = min(xs), max(xs)
    return [tick for tick in _ticks(high) if low <= tick <= high]


def _number(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: int = 400, colour: str = "#24292f", turned: bool = False
) -> str:
    turn = f' transform="rotate(-90 {x:.0f} {y:.0f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn} '
        f'style="{STYLE}; font-weight: {weight}; fill: {colour}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )
