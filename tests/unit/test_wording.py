"""One of a thing, and several."""

from __future__ import annotations

from sexton.domain.wording import counted


def test_a_noun_has_its_plural_except_after_one() -> None:
    assert [counted(count, "run") for count in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]
