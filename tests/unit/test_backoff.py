"""The delay doubles up to its limit."""

from __future__ import annotations

from sexton.domain.backoff import doubled_s


def test_it_doubles_to_its_limit_and_stays_there() -> None:
    assert [doubled_s(0.25, 5.0, count) for count in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_any_number_of_tries_is_allowed() -> None:
    assert doubled_s(0.05, 2.0, 10**9) == 2.0
