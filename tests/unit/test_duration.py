"""Spans as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.domain.duration import seconds
from sexton.domain.fault import Invalid


@pytest.mark.parametrize(
    ("written", "expected_s"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("15m", 900),
        ("24h", 86400),
        ("7d", 604800),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1d2h3m4s5ms", 93784.005),
        (0, 0),
        (2.5, 2.5),
        (timedelta(minutes=1), 60),
        ("0s", 0),
        (3660 * 86400, 3660 * 86400.0),
    ],
)
def test_a_span_is_parsed_in_every_notation(written: Any, expected_s: float) -> None:
    """C5: durations are "90s", "15m", "24h" or seconds."""
    assert seconds(written) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "90",
        "s",
        "-1s",
        "1 h",
        " 1h",
        "1h ",
        "1h\n",
        "1x",
        "1,5h",
        "1e3s",
        "1..5s",
        "∞",
        "s1",
        None,
        [],
        b"1s",
        True,
        False,
        float("nan"),
        float("inf"),
        -0.001,
        -1,
        timedelta(seconds=-1),
        3661 * 86400,
        "3661d",
        10**400,
        -(10**400),
        object,
    ],
    ids=repr,
)
def test_any_other_value_is_rejected_with_the_name_of_its_field(written: Any) -> None:
    """F2: a typed error, whatever the value."""
    with pytest.raises(Invalid) as refused:
        seconds(written, field="timeout")
    assert refused.value.field == "timeout"
    assert str(refused.value).startswith("timeout: ")


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["ms", "s", "m", "h", "d"])), min_size=1, max_size=5))
def test_a_span_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    """C5."""
    whole = seconds("".join(f"{number}{unit}" for number, unit in parts))
    assert whole == pytest.approx(sum(seconds(f"{number}{unit}") for number, unit in parts))


@given(st.timedeltas(timedelta(0), timedelta(days=3660)))
def test_a_timedelta_is_kept_to_the_microsecond(span: timedelta) -> None:
    """C5."""
    assert timedelta(seconds=seconds(span)) == span


@given(st.text() | st.integers() | st.floats() | st.none() | st.binary() | st.lists(st.integers()))
def test_any_value_is_either_parsed_or_rejected(written: Any) -> None:
    """F2: a span within bounds, or `Invalid`."""
    try:
        span_s = seconds(written)
    except Invalid:
        return
    assert 0 <= span_s <= 3660 * 86400
