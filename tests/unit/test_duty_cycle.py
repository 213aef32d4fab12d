"""Work that takes long is done rarely."""

from __future__ import annotations

import pytest

from sexton.domain.duty_cycle import PATIENCE_S, SHARE, DutyCycle


def test_work_that_takes_no_time_is_always_due() -> None:
    cycle = DutyCycle()
    assert cycle.is_due(0.0)
    cycle.note(1.0, 1.0)
    assert cycle.is_due(1.0)


@pytest.mark.parametrize("took_s", [0.01, 0.1])
def test_it_takes_its_share_of_the_time_and_no_more(took_s: float) -> None:
    """B8."""
    cycle = DutyCycle()
    cycle.note(1.0, 1.0 + took_s)
    assert not cycle.is_due(1.0 + took_s * SHARE)
    assert cycle.is_due(1.0 + took_s * (SHARE + 1.1))


def test_however_long_it_takes_it_is_never_omitted() -> None:
    """C4."""
    cycle = DutyCycle()
    cycle.note(0.0, 100.0)
    assert cycle.is_due(100.0 + PATIENCE_S)
