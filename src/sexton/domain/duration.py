"""Durations as users write them: `"90s"`, `"15m"`, `"24h"`, `"7d"`, `"1h30m"`, `"250ms"`, seconds, or a `timedelta`."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import lru_cache

from .fault import Invalid

Duration = timedelta | float | int | str

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_LONGEST_S = 10 * 366 * 86400.0


@lru_cache(maxsize=1024)
def _read(text: str) -> float | None:
    """Remembered, because most jobs of a task say the same: 0.1 µs instead of 3."""
    if not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def seconds(value: Duration, *, field: str = "duration") -> float:
    """The duration in seconds; `Invalid` names the field and the fix."""
    match value:
        case bool():
            raise Invalid(field, f'give a duration such as "90s" or a number of seconds, not {value}')
        case timedelta():
            span_s = value.total_seconds()
        case int() | float():
            span_s = float(value) if abs(value) < _LONGEST_S * 2 else math.inf  # an int may be too large
        case str() if (read_s := _read(value)) is not None:
            span_s = read_s
        case _:
            raise Invalid(field, f'{value!r} is not a duration; write "250ms", "90s", "15m", "24h", "7d" or a count of seconds')
    if not math.isfinite(span_s) or not 0 <= span_s <= _LONGEST_S:
        raise Invalid(field, f"{value!r} must be between zero and ten years")
    return span_s
