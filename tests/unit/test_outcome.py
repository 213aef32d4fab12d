"""An exception as the history keeps it."""

from __future__ import annotations

import msgspec
import pytest

from sexton.domain.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, ErrorInfo


class _Custom(ValueError):
    pass


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_error_is_kept_with_its_bases_and_its_traceback() -> None:
    """A9, C5."""
    info = ErrorInfo.of(_raised(_Custom("broken")))
    assert (info.type, info.message) == (f"{__name__}._Custom", "broken")
    assert info.kinds == (f"{__name__}._Custom", "ValueError", "Exception")
    assert info.traceback is not None
    assert "in _raised" in info.traceback
    assert info.traceback.endswith("_Custom: broken\n")


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "\udfff\x00", "🙂\x00"], ids=ascii)
def test_characters_that_postgresql_cannot_store_are_escaped(text: str) -> None:
    """Rule "bisect bad batches": an error message never breaks a report."""
    info = ErrorInfo.of(_raised(ValueError(text)))
    for kept in (info.message, info.traceback or ""):
        assert "\x00" not in kept
        kept.encode()
    assert msgspec.json.decode(msgspec.json.encode(info), type=ErrorInfo) == info


def test_long_errors_are_cut() -> None:
    """F4: the beginning of the message, the end of the traceback."""
    info = ErrorInfo.of(_raised(ValueError("start" + "x" * 100_000 + "end")))
    assert len(info.message) == MESSAGE_LIMIT
    assert info.message.startswith("start")
    assert info.traceback is not None
    assert len(info.traceback) == TRACEBACK_LIMIT
    assert info.traceback.endswith("end\n")


def test_an_exception_that_cannot_be_formatted_is_still_kept() -> None:
    """A9, C5: a handler's exception must not be able to break the worker that reports it."""
    info = ErrorInfo.of(_raised(_Mute()))
    assert info.type == f"{__name__}._Mute"
    assert info.message


def test_a_group_and_a_cause_are_kept() -> None:
    """A9."""
    info = ErrorInfo.of(_raised(ExceptionGroup("several", [ValueError("one"), KeyError("two")])))
    assert info.traceback is not None
    assert "ValueError: one" in info.traceback
    assert "KeyError: 'two'" in info.traceback


class _Annotated(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


@pytest.mark.parametrize(
    "error",
    [SyntaxError("bad template", ("t.html", 1, 1, 5)), _Annotated("a")],  # type: ignore[arg-type]
    ids=["details of its own", "notes of its own"],
)
def test_a_traceback_that_cannot_be_formatted_still_shows_the_lines(error: Exception) -> None:
    """A9: template engines raise such a SyntaxError."""
    info = ErrorInfo.of(_raised(error))
    assert info.traceback is not None
    assert "in _raised" in info.traceback
    # Python 3.13 formats notes that cannot be read by itself.
    assert "cannot be formatted: " in info.traceback or "Ignored error getting __notes__" in info.traceback
