"""The output of a script, split into lines and bounded (C2)."""

from __future__ import annotations

from sexton.handlers.script.output import KEPT_LIMIT, PENDING_LIMIT, Lines


def test_lines_are_taken_when_they_are_complete() -> None:
    lines = Lines()
    lines.add(b"one\ntwo")
    assert lines.take() == ["one"]
    assert lines.take() == []
    lines.add(b" more\n\n")
    assert lines.take() == ["two more", ""]
    assert lines.last == b"two more"
    lines.add(b"no newline")
    assert lines.take() == []
    assert lines.take(at_end=True) == ["no newline"]
    assert lines.last == b"no newline"


def test_bytes_that_are_not_text_are_shown_too() -> None:
    lines = Lines()
    lines.add(b"\xff\xfe ok\r\n10%\r50%\r100%\n")
    assert lines.take() == ["\\xff\\xfe ok", "100%"]


def test_of_too_much_output_the_newest_is_kept_and_the_rest_counted() -> None:
    lines = Lines()
    line = b"x" * 99 + b"\n"
    for _ in range(10_000):
        lines.add(line)
        assert len(lines._pending) <= PENDING_LIMIT
    mark, *kept = lines.take()
    assert KEPT_LIMIT / 100 - 1 <= len(kept) <= PENDING_LIMIT / 100
    assert mark == f"… {10_000 - len(kept):,} lines omitted …"


def test_the_end_of_a_cut_line_is_not_taken_for_a_line() -> None:
    """A result must not be the end of a longer line."""
    lines = Lines()
    lines.add(b" " * PENDING_LIMIT)
    lines.add(b'{"n": 1}')
    (taken,) = lines.take(at_end=True)
    assert taken.startswith("…")
    assert not lines.last.strip().startswith(b"{")
    lines.add(b'{"n": 2}\n')
    assert lines.take() == ['{"n": 2}']


def test_of_many_short_lines_the_newest_are_passed_on_and_the_rest_counted() -> None:
    """Each line costs the event loop time, however short it is."""
    lines = Lines()
    lines.add(b"".join(b"%d\n" % number for number in range(1000)))
    assert lines.take(3) == ["… 997 lines omitted …", "997", "998", "999"]
    lines.add(b"more\n")
    assert lines.take(3) == ["more"]
